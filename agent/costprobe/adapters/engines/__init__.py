"""Metrics of serving engines: the table of their counters, and the scrape of a page."""
