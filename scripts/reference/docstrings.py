"""The description of a class, from its docstring."""

from __future__ import annotations

import inspect


def about(cls: type) -> list[str]:
    """The paragraphs of the docstring, each on one line; empty if the class has none of its own."""
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
