"""The Host header of a request, which must name this host: prevents DNS rebinding."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_PORT: Final = re.compile(r":\d{1,5}$")


def host_is_local(host: str) -> bool:
    """Return whether a Host header names this host in a way that no DNS record can change.

    Args:
        host: The header's value: a name or an IP address, with an optional port; empty if there
            was no header.
    """
    name = name_of_host(host)
    if name in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def name_of_host(host: str) -> str:
    """Return a Host header without its port, and without the dot at the end of a full name."""
    return _PORT.sub("", host).lower().removesuffix(".")
