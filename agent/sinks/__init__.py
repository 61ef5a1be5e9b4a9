"""Where the series go: each sink is a cursor over the store."""
