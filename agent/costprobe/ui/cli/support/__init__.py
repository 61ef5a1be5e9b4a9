"""What several commands share: configuration, store, service files."""
