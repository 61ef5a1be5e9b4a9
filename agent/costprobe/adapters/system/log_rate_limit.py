"""Rate limit of repeated log messages: the first is logged, then the number of repetitions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

KINDS_MAX: Final = 256
KINDS_A_TEMPLATE_MAX: Final = 16
# Numbers and hexadecimal ids, which differ between occurrences of the same message.
_VARYING: Final = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\d+(?:\.\d+)?")


class LogEntry(NamedTuple):
    """A log message, ready to be written.

    Attributes:
        time_s: UTC seconds since 1970.
        level: As in `logging`.
        part: Module that logged it, relative to the package.
        text: Message, without secrets and control characters.
        file: Source file.
        line: Line in it.
        function: Function.
        thread: Name of the thread.
        repeated: Suppressed repetitions that it stands for; 0 for a message itself.
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
    last: LogEntry
    count: int = 0


class RepeatLimit:
    """Passes the first message of each kind, and counts the others.

    Messages are of one kind if they have the same template and differ only in numbers. A template
    with more than KINDS_A_TEMPLATE_MAX kinds, such as one that quotes a server, is a single kind
    from then on.

    Args:
        every_s: Interval at which counts are reported, in s; a kind without a message for this time
            is dropped.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._of_template: Counter[str] = Counter()

    @property
    def is_counting(self) -> bool:
        """Whether there are counts that are not reported yet."""
        return any(kind.count for kind in self._kinds.values())

    def takes(self, template: str, entry: LogEntry, now_s: float) -> bool:
        """Return whether to log a message; otherwise it is counted.

        Args:
            template: Identifies the statement that logs the message.
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

    def due(self, now_s: float, *, ends: bool = False) -> list[LogEntry]:
        """Return the counts that are due, one entry for each kind.

        Args:
            now_s: Monotonic seconds.
            ends: Whether to return all counts, because the log is closed.
        """
        entries: list[LogEntry] = []
        for key, kind in list(self._kinds.items()):
            if not ends and now_s - kind.since_s < self._every_s:
                continue
            if kind.count:
                last, times = kind.last, "once" if kind.count == 1 else f"{kind.count} times"
                text = f"{last.text} ... repeated {times} in {now_s - kind.since_s:.0f} s"
                entries.append(last._replace(text=text, repeated=kind.count))
                kind.since_s, kind.count = now_s, 0
            else:
                del self._kinds[key]
                self._of_template[key[0]] -= 1
                if not self._of_template[key[0]]:
                    del self._of_template[key[0]]
        return entries
