"""What was measured, as a hash: two results with the same one are of the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

LENGTH = 12


def digest(content: bytes) -> str:
    """Twelve hex digits of the content's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def fingerprint(facts: Mapping[str, str]) -> str:
    """Twelve hex digits of the facts' SHA-256; the same in every process."""
    return digest(json.dumps(dict(facts), sort_keys=True).encode())
