"""Short hashes that identify the software and model of a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

LENGTH = 12


def digest(content: bytes) -> str:
    """Return twelve hex digits of the SHA-256 of content."""
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return twelve hex digits of the SHA-256 of facts; the same in every process."""
    return digest(json.dumps(dict(facts), sort_keys=True).encode())
