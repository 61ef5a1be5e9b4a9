"""Conversion of readings, probe results and serving counters to stored rows."""
