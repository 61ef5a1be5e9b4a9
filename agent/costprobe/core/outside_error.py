"""Errors whose cause is outside the program."""

from __future__ import annotations


class OutsideError(Exception):
    """A disk, a server or another program failed; the text says all, without a traceback."""
