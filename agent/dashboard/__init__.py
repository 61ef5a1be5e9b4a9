"""The built-in page: the store, read-only, in a browser on this host."""
