"""Use cases that combine adapters, which are passed as arguments."""
