"""Tags as labels of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels; characters that are invalid in a label's name are replaced."""
    labels: dict[str, str] = {}
    for tag, value in sorted(tags.items()):
        name = _NO_LABEL.sub("_", tag)
        if name[0].isdigit() or name.startswith("__"):
            name = f"tag_{name.lstrip('_')}"
        while name in labels:
            name += "_"
        labels[name] = value
    return labels
