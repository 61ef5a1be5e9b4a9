"""Probes of a running inference server: timed HTTP requests; standard library only."""
