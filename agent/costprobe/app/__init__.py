"""Use cases, each given its adapters."""
