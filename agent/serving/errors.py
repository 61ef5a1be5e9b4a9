"""What can be wrong with a serving process's endpoint, in one class."""

from __future__ import annotations


class ScrapeError(Exception):
    """A reading that gave nothing to count.

    Its text is one line for the operator: what is wrong and what to do. It holds no secret and
    nothing long that a server said.
    """
