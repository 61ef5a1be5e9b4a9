"""Setting up the InfluxDB that a sink writes to: what is missing, and making it."""
