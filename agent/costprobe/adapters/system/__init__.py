"""The host: logging, journal, child processes and secrets."""
