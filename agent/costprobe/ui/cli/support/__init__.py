"""Shared by several commands: configuration, store, service files."""
