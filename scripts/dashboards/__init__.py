"""Builds the Grafana dashboards that costprobe ships, with Grafana's own typed builders."""
