"""HTTP with limits on time and size: one client, one table of status codes, one back-off."""
