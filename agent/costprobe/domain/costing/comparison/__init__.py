"""Comparing costs: models side by side, and cost changes."""
