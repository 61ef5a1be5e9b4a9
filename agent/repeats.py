"""Messages that come again and again: the first is said, then how many there were."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

KINDS_MAX: Final = 256
KINDS_A_TEMPLATE_MAX: Final = 16
# What tells one occurrence from the next and not one trouble from another.
_VARYING: Final = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\d+(?:\.\d+)?")


class Entry(NamedTuple):
    """A message of the log, ready to be written.

    Attributes:
        time_s: UTC seconds since 1970.
        level: As in `logging`.
        part: Who says it: the module's name in the package.
        text: What is said, without secrets and control characters.
        file: Source file.
        line: Line in it.
        function: Function.
        thread: Name of the thread.
        repeated: How often it came again unsaid; 0 for a message of its own.
    """

    time_s: float
    level: int
    part: str
    text: str
    file: str
    line: int
    function: str
    thread: str
    repeated: int = 0


@dataclass(slots=True)
class _Kind:
    since_s: float
    last: Entry
    count: int = 0


class RepeatLimit:
    """Says the first of each kind of message, and counts the others.

    Two messages are of one kind if they have one template and differ in numbers alone. A template
    with many kinds, as one that quotes what others say, is one kind from then on.

    Args:
        every_s: How often the counts are told, in seconds; a kind that was silent for so long is
            new again.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._of_template: Counter[str] = Counter()

    @property
    def is_counting(self) -> bool:
        """Whether there are counts that have yet to be told."""
        return any(kind.count for kind in self._kinds.values())

    def takes(self, template: str, entry: Entry, now_s: float) -> bool:
        """Whether a message is to be said; if not, it is counted.

        Args:
            template: What the messages of one place in the code have in common.
            entry: The message.
            now_s: Monotonic seconds.
        """
        key = (template, _VARYING.sub("#", entry.text))
        if key not in self._kinds and self._of_template[template] >= KINDS_A_TEMPLATE_MAX:
            key = (template, "")
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = ("", "")
        kind = self._kinds.get(key)
        if kind is None:
            self._kinds[key] = _Kind(now_s, entry)
            self._of_template[key[0]] += 1
            return True
        kind.count += 1
        kind.last = entry
        return False

    def due(self, now_s: float, *, ends: bool = False) -> list[Entry]:
        """What is to be said of messages that were not, a line for each kind.

        Args:
            now_s: Monotonic seconds.
            ends: Whether this is the last chance.
        """
        found: list[Entry] = []
        for key, kind in list(self._kinds.items()):
            if not ends and now_s - kind.since_s < self._every_s:
                continue
            if kind.count:
                last, times = kind.last, "once" if kind.count == 1 else f"{kind.count} times"
                text = f"{last.text} ... repeated {times} in {now_s - kind.since_s:.0f} s"
                found.append(last._replace(text=text, repeated=kind.count))
                kind.since_s, kind.count = now_s, 0
            else:
                del self._kinds[key]
                self._of_template[key[0]] -= 1
                if not self._of_template[key[0]]:
                    del self._of_template[key[0]]
        return found
