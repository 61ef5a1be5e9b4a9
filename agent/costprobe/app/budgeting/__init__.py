"""Budgets as readers of the store see them: where each stands, and where it is heading."""
