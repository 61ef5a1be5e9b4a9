"""The built-in dashboard: read-only access to the store in a browser."""
