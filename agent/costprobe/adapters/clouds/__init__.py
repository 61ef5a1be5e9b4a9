"""Clouds: the instance that this host is, price lists, and sources of values over time."""
