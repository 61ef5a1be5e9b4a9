"""Names of devices that stand for other boards since an instant: rows before it have the old names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from costprobe.core.records import END_OF_TIME_NS, Point

# Between whole names: gpu1 is in "gpu0+gpu1" and "gpu1.mig0", and not in "gpu10".
_EDGE = r"[\w-]"


def renaming(moved: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces names in a text.

    Args:
        moved: New names by old ones.
    """
    if not moved:
        return lambda text: text
    names = "|".join(map(re.escape, sorted(moved, key=len, reverse=True)))
    pattern = re.compile(rf"(?<!{_EDGE})(?:{names})(?!{_EDGE})")
    return lambda text: pattern.sub(lambda match: moved[match[0]], text)


@dataclass(frozen=True, slots=True)
class MovedNames:
    """The instants at which names moved to other boards.

    Attributes:
        steps: UTC in ns, and the new names by the old ones; oldest first.
    """

    steps: Sequence[tuple[int, Mapping[str, str]]] = ()

    def present(self, row: Point) -> Point:
        """Return a row with the name under which its device stands today."""
        device = row.tags.get("device", "")
        for time_ns, moved in self.steps:
            if row.time_ns < time_ns:
                device = renaming(moved)(device)
        changed = device != row.tags.get("device", "")
        return replace(row, tags={**row.tags, "device": device}) if changed else row

    def places(self, device: str, start_ns: int, end_ns: int) -> list[tuple[str, int, int]]:
        """Return under which names the rows of a device are, oldest first.

        Args:
            device: Its name of today.
            start_ns: UTC in ns.
            end_ns: UTC in ns after the last row.

        Returns:
            Names, each with the start and the end of its time.
        """
        found: list[tuple[str, int, int]] = []
        until_ns = END_OF_TIME_NS
        for time_ns, moved in reversed(self.steps):
            found.append((device, time_ns, until_ns))
            until_ns = time_ns
            before = renaming({new: old for old, new in moved.items()})(device)
            if before == device and renaming(moved)(device) != device:
                break  # another board had the name
            device = before
        else:
            found.append((device, 0, until_ns))
        spans = [(name, max(since, start_ns), min(until, end_ns)) for name, since, until in found]
        return [span for span in reversed(spans) if span[1] < span[2]]


NOT_MOVED = MovedNames()
