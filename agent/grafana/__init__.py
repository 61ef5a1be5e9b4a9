"""The dashboards that Grafana shows, and the files that make it show them."""
