"""Budgets: periods, spend, forecasts and notices."""
