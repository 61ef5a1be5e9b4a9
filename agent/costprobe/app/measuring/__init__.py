"""Probe jobs: scheduling, running, joining energy."""
