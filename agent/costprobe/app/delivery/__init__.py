"""Delivery to sinks and notifiers, and retention."""
