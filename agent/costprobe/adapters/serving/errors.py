"""The error of a scrape."""

from __future__ import annotations


class ScrapeError(Exception):
    """A scrape that gave nothing to count.

    Its text is one line for the operator: what is wrong and what to do, without secrets and with
    at most an excerpt of the response.
    """
