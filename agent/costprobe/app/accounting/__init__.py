"""Readings, probe results and serving counters become rows in the store."""
