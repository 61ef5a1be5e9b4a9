"""Sinks, notifiers and retention at work."""
