"""Drift and anomalies in a series, and correlated signals."""
