"""The work of a service by minute, aggregated from its rows without keeping them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from costprobe.core.records import NS_PER_S
from costprobe.domain.advice.device_history import HOUR_NS, MINUTE_NS, MINUTES, add_evenly
from costprobe.domain.costing.comparison.read_fields import UNITS

# Rows do not begin and end at full minutes exactly.
_WHOLE_MINUTE_S = 59.0
_NO_MINUTES = array("d", [0.0] * MINUTES)
_ALL_MINUTES = (1 << MINUTES) - 1


def _by_minute() -> array[float]:
    return _NO_MINUTES[:]


@dataclass(slots=True)
class ServedHour:
    """An hour of a service.

    Attributes:
        covered_s: Seconds of each minute that complete rows cover.
        active: One bit for each minute of a row with work.
        is_doubtful: Whether a row is incomplete.
        counts: Work in each minute by unit; a row's work is spread over its minutes.
    """

    covered_s: array[float] = field(default_factory=_by_minute)
    active: int = 0
    is_doubtful: bool = False
    counts: dict[str, array[float]] = field(
        default_factory=lambda: {unit: _by_minute() for unit in UNITS}
    )

    @property
    def idle(self) -> int:
        """One bit for each minute that is known to be without work."""
        if self.active == _ALL_MINUTES:
            return 0
        known = sum(
            1 << minute
            for minute, covered_s in enumerate(self.covered_s)
            if covered_s >= _WHOLE_MINUTE_S
        )
        return known & ~self.active

    @property
    def is_known(self) -> bool:
        """Whether complete rows cover all of it."""
        return not self.is_doubtful and min(self.covered_s) >= _WHOLE_MINUTE_S

    @property
    def requests(self) -> float:
        """Answered requests; output tokens where a server does not count requests."""
        return sum(self.counts["requests"]) or sum(self.counts["tokens_out"])


@dataclass(slots=True)
class ServiceHistory:
    """The history of a service.

    Attributes:
        name: Name of the service.
        devices: Names of its devices.
        cold_start_s: Configured duration of a start until the first answer; None if not stated.
        hours: By hour number since 1970, UTC.
        row_s: Length of its longest row: shorter gaps between requests are not seen.
        missing: Units that a complete row lacks.
    """

    name: str
    devices: tuple[str, ...]
    cold_start_s: float | None = None
    hours: dict[int, ServedHour] = field(default_factory=dict)
    row_s: float = 0.0
    missing: set[str] = field(default_factory=set)

    def add(
        self,
        start_ns: int,
        end_ns: int,
        counts: Mapping[str, float | None],
        *,
        is_active: bool,
        is_complete: bool,
    ) -> None:
        """Add a row.

        Args:
            start_ns: UTC ns.
            end_ns: UTC ns.
            counts: Work by unit; None where it is not counted.
            is_active: Whether any counter increased.
            is_complete: Whether its counters are complete.
        """
        length_ns = end_ns - start_ns
        self.row_s = max(self.row_s, length_ns / NS_PER_S)
        if is_complete:
            self.missing |= {unit for unit in UNITS if counts.get(unit) is None}
        work = [(unit, count) for unit in UNITS if (count := counts.get(unit))]
        for number in range(start_ns // HOUR_NS, -(-end_ns // HOUR_NS)):
            hour = self.hours.get(number)
            if hour is None:
                hour = self.hours[number] = ServedHour()
            hour_ns = number * HOUR_NS
            within = max(start_ns, hour_ns) - hour_ns, min(end_ns - hour_ns, HOUR_NS)
            hour.is_doubtful |= not is_complete
            if is_active:
                hour.active |= (1 << -(-within[1] // MINUTE_NS)) - (1 << within[0] // MINUTE_NS)
            if is_complete:
                _spread(hour.covered_s, within, 1, NS_PER_S)
            for unit, count in work:
                _spread(hour.counts[unit], within, count, length_ns)

    @property
    def unit(self) -> str | None:
        """The unit that every row counts and some row has; None if there is none."""
        return next(
            (unit for unit in UNITS if unit not in self.missing and self.most_per_s(unit)), None
        )

    def most_per_s(self, unit: str) -> float:
        """Return the work per second in the minute with the most."""
        return max((max(hour.counts[unit]) for hour in self.hours.values()), default=0.0) / 60


def _spread(
    by_minute: array[float], within: tuple[int, int], amount: float, length_ns: int
) -> None:
    """Add the part of an amount that falls on each minute.

    Args:
        by_minute: The minutes of an hour.
        within: Start and end in ns since the start of the hour.
        amount: The amount of a length of time.
        length_ns: This length.
    """
    since_ns, until_ns = within
    first, last = since_ns // MINUTE_NS, (until_ns - 1) // MINUTE_NS
    if first < last:
        by_minute[first] += amount * ((first + 1) * MINUTE_NS - since_ns) / length_ns
        add_evenly(by_minute, first + 1, last, amount * MINUTE_NS / length_ns)
        since_ns = last * MINUTE_NS
    by_minute[last] += amount * (until_ns - since_ns) / length_ns
