"""User interfaces: CLI, dashboard, report, Grafana and InfluxDB set-up."""
