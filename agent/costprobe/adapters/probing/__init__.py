"""Probe children: requests, supervision and results; only the child process imports torch."""
