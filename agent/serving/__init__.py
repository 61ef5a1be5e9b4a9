"""What serving processes say of their own work: their Prometheus endpoints, read and counted."""
