"""Comparing costs: models side by side, what-if prices, cost changes."""
