"""Set-up of the InfluxDB of a sink: detection and creation of missing parts."""
