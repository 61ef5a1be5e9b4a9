"""The database of a fleet: a question about all hosts, in InfluxQL or PromQL, and its answer."""
