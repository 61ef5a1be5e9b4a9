"""Names of devices and hosts."""

from __future__ import annotations

import re
from typing import Any, Final

# Separator between the names of devices that are measured and priced as a group.
TOGETHER: Final = "+"
_NUMBER: Final = re.compile(r"([0-9]+)")


def natural(*names: str) -> tuple[Any, ...]:
    """Return a key that sorts names for people: gpu2 before gpu10, by the first name first."""
    return tuple((_parts(name), name) for name in names)


def _parts(name: str) -> list[str | tuple[int, str]]:
    # Texts and numbers take turns, beginning with a text.
    parts = _NUMBER.split(name)
    return [_size(part) if index % 2 else part for index, part in enumerate(parts)]


def _size(digits: str) -> tuple[int, str]:
    # The longer number is the larger one; `int` refuses very long ones.
    significant = digits.lstrip("0")
    return len(significant), significant
