"""Names of series in tables and legends, from their tags; different series have different names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

# Tags that identify what is measured, apart from where.
SUBJECT_TAGS: Final = ("budget", "probe", "service", "served_model", "part")
# Tags in the names of series; others are the same for all series of most hosts.
_IDENTITY: Final = ("budget", "device", *SUBJECT_TAGS[1:])
_TELLING: Final = (*_IDENTITY, "batch", "basis", "plan")


def subject_of(tags: Mapping[str, str]) -> str:
    """Return what a series is of, such as "encoder" or "chat base"; empty for a device."""
    return " ".join(tags[tag] for tag in SUBJECT_TAGS if tag in tags)


def series_names(all_tags: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a name for each series, without the batch, basis and plan that all have in common.

    Labels and the currency are in it where names would be equal without them.
    """
    told = [
        tag for tag in _TELLING if tag in _IDENTITY or len({tags.get(tag) for tags in all_tags}) > 1
    ]
    names = [" ".join(tags[tag] for tag in told if tag in tags) for tags in all_tags]
    if len(set(names)) == len(names):
        return names
    others = sorted({tag for tags in all_tags for tag in tags} - set(_TELLING))
    differing = [tag for tag in others if len({tags.get(tag) for tags in all_tags}) > 1]
    return [
        " ".join([name, *(f"{tag}={tags[tag]}" for tag in differing if tag in tags)])
        for name, tags in zip(names, all_tags, strict=True)
    ]
