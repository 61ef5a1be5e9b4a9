"""Hours of the week in which devices can be switched off, tested on weeks that were not used to find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from costprobe.core.weekly_hours import HOURS_A_DAY, HOURS_A_WEEK, WEEKDAYS
from costprobe.domain.advice.workload import HourLoad, hour_of_week

# Each hour of the week must be observed at least twice.
LEAST_WEEKS = 2
# Restarting takes minutes: shorter blocks are not worth it.
LEAST_BLOCK_H = 2
# A schedule that people can follow has few blocks.
BLOCKS_MAX = 3
# Probability of advice on load without a weekly pattern.
FALSE_ADVICE_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Block:
    """The same hours on some days.

    Attributes:
        hour: First hour of the day, 0 to 23.
        length_h: Number of hours.
        days: Days on which it starts, 0 = Monday.
    """

    hour: int
    length_h: int
    days: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """Hours of the week at which it starts."""
        return [day * HOURS_A_DAY + self.hour for day in self.days]

    @property
    def hours_of_week(self) -> set[int]:
        """Hours of the week that it contains."""
        return {
            (start + step) % HOURS_A_WEEK for start in self.starts for step in range(self.length_h)
        }

    @property
    def words(self) -> str:
        """The block as text, such as "mon tue 20:00 to 08:00 1 day later"."""
        if self.length_h == HOURS_A_WEEK:
            return "all week"
        first = " ".join(WEEKDAYS[day] for day in self.days)
        end_day, end_hour = divmod(self.hour + self.length_h, HOURS_A_DAY)
        if end_hour == 0:
            end_day, end_hour = end_day - 1, HOURS_A_DAY
        end = f"{end_hour:02}:00"
        if end_day and len(self.days) == 1:
            end = f"{WEEKDAYS[(self.days[0] + end_day) % len(WEEKDAYS)]} {end}"
        elif end_day:
            end = f"{end} {end_day} day{'s' if end_day > 1 else ''} later"
        return f"{first} {self.hour:02}:00 to {end}"


def idle_blocks(
    found_in: Mapping[int, HourLoad], held_out: Mapping[int, HourLoad], zone: tzinfo | None
) -> list[Block]:
    """Return blocks that were idle in every week, and are so by more than chance.

    The candidates are the longest blocks that were idle in every week of `found_in`. A candidate is
    kept if it was idle every time in the held-out weeks too, and if that is unlikely without a weekly
    pattern: a share q of all windows of its length was idle, so m independent windows are all idle
    with probability q^m (a binomial test with no failure). With k candidates q^m must be at most
    0.05 / k (Bonferroni), so on load without a pattern at most one of 20 searches finds any.

    Args:
        found_in: Load by hour number.
        held_out: Load of later weeks; without any there are no blocks.
        zone: Time zone of the hours of the week; None for the host's own.
    """
    if not any(hour.is_idle for hour in found_in.values()):
        return []
    slots: dict[int, list[bool]] = {}
    for number, hour in found_in.items():
        slots.setdefault(hour_of_week(number, zone), []).append(hour.is_idle)
    idle = {slot for slot, states in slots.items() if len(states) >= LEAST_WEEKS and all(states)}
    candidates = sorted(_blocks(idle), key=lambda block: -block.length_h * len(block.days))
    candidates = candidates[:BLOCKS_MAX]
    everything = {**found_in, **held_out}
    return [
        block
        for block in candidates
        if _is_no_chance(block, held_out, everything, zone, FALSE_ADVICE_MAX / len(candidates))
    ]


def _is_no_chance(
    block: Block,
    held_out: Mapping[int, HourLoad],
    everything: Mapping[int, HourLoad],
    zone: tzinfo | None,
    probability_max: float,
) -> bool:
    starts = {*block.starts}
    windows = [
        state
        for number in held_out
        if hour_of_week(number, zone) in starts
        and (state := _window(held_out, number, block.length_h, block.length_h // 2)) is not None
    ]
    anywhere = [
        state
        for number in everything
        if (state := _window(everything, number, block.length_h, block.length_h)) is not None
    ]
    if not windows or not all(windows):
        return False
    idle_share = sum(anywhere) / len(anywhere)
    return bool(idle_share ** len(windows) <= probability_max)


def _window(hours: Mapping[int, HourLoad], first: int, length_h: int, least_h: int) -> bool | None:
    """Return whether consecutive hours were idle; None if fewer than `least_h` of them are known."""
    window = [hours.get(number) for number in range(first, first + length_h)]
    known = [hour for hour in window if hour is not None]
    return all(hour.is_idle for hour in known) if len(known) >= least_h else None


def _blocks(idle: set[int]) -> list[Block]:
    """Return the blocks of idle hours; runs at the same time of several days are one block."""
    same: dict[tuple[int, int], list[int]] = {}
    for start, length_h in idle_runs(idle):
        if length_h >= LEAST_BLOCK_H:
            day, hour = divmod(start, HOURS_A_DAY)
            same.setdefault((hour, length_h), []).append(day)
    return [Block(hour, length_h, tuple(days)) for (hour, length_h), days in same.items()]


def idle_runs(slots: set[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive hours as (first hour, length); Sunday continues on Monday."""
    if len(slots) == HOURS_A_WEEK:
        return [(0, HOURS_A_WEEK)]
    runs = []
    for start in sorted(slots):
        if (start - 1) % HOURS_A_WEEK not in slots:
            length_h = 1
            while (start + length_h) % HOURS_A_WEEK in slots:
                length_h += 1
            runs.append((start, length_h))
    return runs


def words_of(blocks: Sequence[Block]) -> str:
    """Return blocks as text."""
    return ", ".join(block.words for block in blocks)
