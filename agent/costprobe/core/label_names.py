"""Names of tags as labels of Prometheus."""

from __future__ import annotations

import re
from typing import Final

_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


def label_name(tag: str) -> str:
    """Return the label of a tag; characters that are invalid in a label's name are replaced."""
    name = _NO_LABEL.sub("_", tag)
    if name[0].isdigit() or name.startswith("__"):
        return f"tag_{name.lstrip('_')}"
    return name
