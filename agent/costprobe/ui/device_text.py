"""Names of devices as text: a run such as gpu0 to gpu7 is not listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from costprobe.core.records import natural

_NUMBERED: Final = re.compile(r"(.*?)(\d+)")
# More names than this are counted instead.
MAX_NAMES: Final = 4
# "gpu0 and gpu1 and gpu2", as actions and workloads list devices.
_LISTED: Final = re.compile(r"\b[\w.]*\d(?: and [\w.]*\d){2,}\b")


def devices_text(names: Iterable[str]) -> str:
    """Return the names of devices: "gpu0", "gpu0 and gpu3", "gpu0 to gpu7", "6 devices"."""
    ordered = sorted(set(names), key=natural)
    if len(ordered) > 2 and _is_run(ordered):  # noqa: PLR2004 - a pair is listed
        return f"{ordered[0]} to {ordered[-1]}"
    if len(ordered) > MAX_NAMES:
        return f"{len(ordered)} devices"
    *first, last = ordered or [""]
    return f"{', '.join(first)} and {last}" if first else last


def short(text: str) -> str:
    """Return a text with runs of devices as "gpu0 to gpu7"."""
    return _LISTED.sub(lambda match: devices_text(match[0].split(" and ")), text)


def _is_run(names: Sequence[str]) -> bool:
    first = _NUMBERED.fullmatch(names[0])
    return first is not None and all(
        name == f"{first[1]}{int(first[2]) + index}" for index, name in enumerate(names)
    )
