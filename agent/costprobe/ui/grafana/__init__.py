"""Grafana dashboards and their provisioning files."""
