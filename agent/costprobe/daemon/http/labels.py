"""Tags as labels of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.label_names import label_name


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels; characters that are invalid in a label's name are replaced."""
    labels: dict[str, str] = {}
    for tag, value in sorted(tags.items()):
        name = label_name(tag)
        while name in labels:
            name += "_"
        labels[name] = value
    return labels
