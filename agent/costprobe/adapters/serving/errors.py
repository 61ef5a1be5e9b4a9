"""The error of a scrape."""

from __future__ import annotations


class ScrapeError(Exception):
    """A failed scrape.

    Its text is one line for the operator with problem and fix, without secrets and with at most an
    excerpt of the response.
    """
