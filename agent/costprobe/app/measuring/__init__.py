"""Probe jobs: scheduling and running probes, and joining their energy."""
