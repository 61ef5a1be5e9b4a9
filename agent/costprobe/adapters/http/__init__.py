"""HTTP with limits on time and size: one client, one server, addresses and secrets, errors."""
