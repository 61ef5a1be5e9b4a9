"""The cost report of a period."""
