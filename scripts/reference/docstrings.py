"""Descriptions of classes, from their docstrings."""

from __future__ import annotations

import inspect


def about(cls: type) -> list[str]:
    """Return the paragraphs of a class's own docstring, each on one line; empty without one."""
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
