"""The control socket and its requests."""
