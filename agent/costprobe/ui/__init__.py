"""What people use: CLI, dashboard, report, Grafana and InfluxDB set-up."""
