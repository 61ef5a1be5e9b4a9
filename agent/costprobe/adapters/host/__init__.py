"""The host: log, redaction of secrets, files, child processes, signals and periodic jobs."""
