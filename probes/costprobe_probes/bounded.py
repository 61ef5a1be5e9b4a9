"""Parsing JSON from the daemon and from servers, with limits on its depth and number of values.

This package imports nothing of the daemon's; the daemon has its own `costprobe.core.bounded`.
"""

from __future__ import annotations

import json
from typing import Any

# An empty list takes two characters and 56 bytes.
MAX_VALUES = 500_000
MAX_DEPTH = 64


def parse_bounded(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON per RFC 8259, without NaN.

    Raises:
        ValueError: It is malformed or exceeds a limit; the message contains no part of it.
    """
    openers = text.count(b"[") + text.count(b"{")
    if openers + text.count(b",") > MAX_VALUES:
        raise ValueError("too many values")
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError("malformed") from None
    if openers > MAX_DEPTH and _is_deeper(document):
        raise ValueError("nested too deep")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is_deeper(document: object) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            inner for outer in level for inner in _inner(outer) if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _inner(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
