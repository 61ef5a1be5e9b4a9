"""Set-up of the InfluxDB that a sink writes to: what it lacks, and how to create it."""
