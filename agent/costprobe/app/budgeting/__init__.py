"""Status and forecast of budgets, computed from the store."""
