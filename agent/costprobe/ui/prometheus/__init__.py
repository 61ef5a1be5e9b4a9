"""Recording and alerting rules for Prometheus."""
