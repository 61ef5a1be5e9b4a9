"""The words of a class: what its docstring says of it and of each of its attributes."""

from __future__ import annotations

import inspect
import re

_ATTRIBUTES = re.compile(r"^Attributes:$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.+)$")


def about(cls: type) -> list[str]:
    """The paragraphs before its attributes, each on one line; empty if it has no docstring."""
    text = _ATTRIBUTES.split(inspect.cleandoc(cls.__doc__ or ""))[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def attributes(cls: type) -> dict[str, str]:
    """The words of each attribute; a class's own go before those that it inherits."""
    found: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        found |= _own_attributes(parent.__dict__.get("__doc__") or "")
    return found


def _own_attributes(docstring: str) -> dict[str, str]:
    found: dict[str, str] = {}
    parts = _ATTRIBUTES.split(inspect.cleandoc(docstring))
    name = ""
    for line in parts[1].splitlines() if len(parts) > 1 else ():
        entry = _ENTRY.match(line)
        if entry:
            name = entry[1]
            found[name] = entry[2].strip()
        elif line.startswith(" " * 8) and name:
            found[name] += f" {line.strip()}"
        elif line and not line.startswith(" "):
            break  # another section of the docstring
    return found
