"""A configuration for display, with secrets in addresses and commands masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"
_USER: Final = re.compile(r"(://)[^/\s@]+@")
# A name and its value, or only a value.
_QUERY_VALUE: Final = re.compile(r"([?&](?:[^=&#\s]+=(?=[^&#\s]))?)[^&#\s]+")
_FRAGMENT: Final = re.compile(r"#\S+$")
_ADDRESS: Final = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COMMAND: Final = "command"


def shown(value: Any, key: str = "") -> Any:  # noqa: ANN401 - any TOML value
    """Return the tables with users and query values of addresses, and arguments of commands, masked.

    Names of secret files are shown, because operators need to know them.

    Args:
        value: Tables, lists or a value.
        key: The key of the value.
    """
    if isinstance(value, Mapping):
        return {name: shown(held, name) for name, held in value.items()}
    if isinstance(value, list | tuple):
        if key == _COMMAND:
            return [*value[:1], *(MASK for _ in value[1:])]
        return [shown(held, key) for held in value]
    return _without_secrets(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> str:
    if not _ADDRESS.match(text):
        return text
    text = _USER.sub(rf"\1{MASK}@", text)
    return _FRAGMENT.sub(f"#{MASK}", _QUERY_VALUE.sub(rf"\1{MASK}", text))
