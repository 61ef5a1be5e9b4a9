"""Drift and anomalies in a series, and what moved with them."""
