"""Telling people and pagers of incidents, each by its own queue."""
