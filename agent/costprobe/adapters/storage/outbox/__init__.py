"""The store as an outbox: cursors, bounds and order of what each sink sends."""
