"""Mask addresses in a bundle."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from costprobe.adapters.host.redaction import MASK

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,30}://[^\s\"'<>\\,;)]+", re.IGNORECASE)


def without_addresses(text: str) -> str:
    """Cut each address in a text after its port, because services put secrets into paths."""
    return _URL.sub(lambda match: _bare(match[0]), text)


def _bare(url: str) -> str:
    """Return scheme, host and port of an address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return MASK
    place = f"[{host}]" if ":" in host else host
    masked_path = f"/{MASK}" if parts.path not in {"", "/"} or parts.query or parts.fragment else ""
    return urlunsplit((parts.scheme, f"{place}:{port}" if port else place, masked_path, "", ""))
