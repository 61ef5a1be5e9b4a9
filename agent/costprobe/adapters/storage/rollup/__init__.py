"""Retention and aggregation of old rows."""
