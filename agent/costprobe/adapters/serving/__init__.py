"""Scraping serving engines: their Prometheus endpoints, fetched, parsed and counted."""
