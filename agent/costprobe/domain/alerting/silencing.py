"""Silences that operators add, and weekly maintenance windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from costprobe.core.incident import Silence
from costprobe.core.records import NS_PER_S
from costprobe.core.weekly_hours import is_within
from costprobe.domain.alerting.matching import matches
from costprobe.domain.alerting.settings import MaintenanceConfig

MAX_SILENCES = 1000
# An ended silence is kept this long.
KEPT_NS = 86_400 * NS_PER_S


class Silencing:
    """The silences and maintenance windows of a host.

    Args:
        maintenance: Configured windows.
    """

    def __init__(self, maintenance: Sequence[MaintenanceConfig]) -> None:
        self._maintenance = tuple(maintenance)
        self._silences: dict[str, Silence] = {}

    def add(self, silence: Silence) -> None:
        """Add a silence; it replaces one with the same id.

        Raises:
            ValueError: There are too many, or it ends before it begins.
        """
        if silence.ends_ns <= silence.starts_ns:
            raise ValueError("a silence must end after it begins")
        if len(self._silences) >= MAX_SILENCES and silence.id not in self._silences:
            raise ValueError(f"there are {MAX_SILENCES} silences already; end some first")
        self._silences[silence.id] = silence

    def end(self, silence_id: str, time_ns: int) -> Silence:
        """End a silence at a UTC ns.

        Raises:
            KeyError: No active silence has that id.
        """
        silence = self._silences[silence_id]
        if silence.ends_ns <= time_ns:
            raise KeyError(silence_id)
        starts_ns = min(silence.starts_ns, time_ns)
        self._silences[silence_id] = replace(silence, starts_ns=starts_ns, ends_ns=time_ns)
        return silence

    def present(self, time_ns: int) -> tuple[Silence, ...]:
        """Return the silences current at a UTC ns and future ones, in order of their ends."""
        for old in [s.id for s in self._silences.values() if time_ns - s.ends_ns > KEPT_NS]:
            del self._silences[old]
        left = (silence for silence in self._silences.values() if silence.ends_ns > time_ns)
        return tuple(sorted(left, key=lambda silence: (silence.ends_ns, silence.id)))

    def is_silenced(self, labels: Mapping[str, str], time_ns: int) -> bool:
        """Return whether an incident with these labels is silenced at a UTC ns."""
        held = (
            silence.starts_ns <= time_ns < silence.ends_ns and matches(silence.match, labels)
            for silence in self._silences.values()
        )
        return any(held) or any(
            matches(window.match, labels)
            and is_within(window.days, window.start, window.end, window.timezone, time_ns)
            for window in self._maintenance
        )

    def document(self) -> list[dict[str, Any]]:
        """Return the silences as JSON."""
        return [{**asdict(s), "match": dict(s.match)} for s in self._silences.values()]

    def restore(self, document: Sequence[Mapping[str, Any]]) -> None:
        """Restore a state."""
        self._silences = {silence["id"]: Silence(**silence) for silence in document}
