"""Builds the Grafana dashboards that infercost ships, with Grafana's own typed builders."""
