"""A configuration as it may be shown and passed on: without what addresses and commands may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"
_USER: Final = re.compile(r"(://)[^/\s@]+@")
# A name and its value, or a value alone.
_QUERY_VALUE: Final = re.compile(r"([?&](?:[^=&#\s]+=(?=[^&#\s]))?)[^&#\s]+")
_FRAGMENT: Final = re.compile(r"#\S+$")
_ADDRESS: Final = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COMMAND: Final = "command"


def shown(value: Any, key: str = "") -> Any:  # noqa: ANN401 - what TOML holds
    """The same tables, with users and query values of addresses masked, and arguments of commands.

    The names of files of secrets are shown: an operator has to see which are in force.

    Args:
        value: Tables, lists or a value.
        key: The key that it is the value of.
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
