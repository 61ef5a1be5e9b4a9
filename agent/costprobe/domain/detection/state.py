"""A detector's state as bytes: numbers in a fixed order, no pickle."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from dataclasses import astuple

from costprobe.domain.detection.change_filter import ChangeFilter
from costprobe.domain.detection.findings import DetectorSettings
from costprobe.domain.detection.first_day import FirstDay
from costprobe.domain.detection.normal import RECENT, SeriesModel
from costprobe.domain.detection.profile import DAY_S, HOURS, DayProfile, WeekMemory

MAGIC = b"ICD2"
# What a state contains after the numbers of every state.
WARM_UP, FIRST_DAY, PROFILED = 0.0, 1.0, 2.0
NORMAL = [
    "count",
    "started_s",
    "last_s",
    "last_log",
    "hour_ends_s",
    "known_hour",
    "interval_s",
    "level",
    "level_count",
    "state",
    "scale",
    "floor",
    "lag_product",
    "lag_square",
    "clipped",
    "repeats",
    "wander",
    "run",
    "phi",
    "sigma",
    "sigma_all",
    "long_run",
    "scale_rate",
    "lag_rate",
    "gap_s",
    "far",
    "near",
]
CHANGE_FILTER = [
    "reported_s",
    "reported_level",
    "reported_after",
    "follow_until_s",
    "follow_sign",
    "held_level",
    "held_since_s",
]
PROFILE = ["slot_s", "weight", "days", "product", "square"]
WEEK = ["explained", "hour", "total", "count"]
INTEGERS = {"count", "known_hour", "run", "days", "hour"}


def pack(normal: SeriesModel, change_filter: ChangeFilter) -> bytes:
    """Encode the parts of a detector."""
    profile, first_day = normal.profile, normal.first_day
    kind = PROFILED if profile else FIRST_DAY if first_day else WARM_UP
    numbers = array("d", [*astuple(normal.settings), kind])
    for owner, names in ((normal, NORMAL), (change_filter, CHANGE_FILTER), (normal.week, WEEK)):
        numbers.extend(float(getattr(owner, name)) for name in names)
    numbers.extend([*normal.bounds, *normal.sums, *normal.since_s])
    numbers.extend([*normal.week.means, *normal.week.shifted])
    numbers.extend([len(normal.recent), *normal.recent])
    if profile is not None:
        numbers.extend(float(getattr(profile, name)) for name in PROFILE)
        numbers.extend(profile.values)
    elif first_day is not None:
        numbers.extend(
            [first_day.slot_s, first_day.first_slot, len(first_day.values), *first_day.values]
        )
    return MAGIC + struct.pack(f"<{len(numbers)}d", *numbers)


def unpack(data: bytes) -> tuple[SeriesModel, ChangeFilter]:
    """Decode the parts of a detector.

    Raises:
        ValueError: The bytes are not a state.
    """
    if data[: len(MAGIC)] != MAGIC or len(data) % 8 != len(MAGIC):
        raise ValueError("not the state of a detector, or of another version")
    try:
        return _unpacked(data)
    except (ArithmeticError, IndexError) as error:
        raise ValueError(f"the state of a detector is damaged: {error}") from error


def _unpacked(data: bytes) -> tuple[SeriesModel, ChangeFilter]:
    reader = _Reader(struct.unpack(f"<{len(data) // 8}d", data[len(MAGIC) :]))
    effect, warm_up, run_length, memory, spike = reader.take(5)
    settings = DetectorSettings(effect, int(warm_up), run_length, int(memory), spike)
    (kind,) = reader.take(1)
    normal, change_filter, week = SeriesModel(settings), ChangeFilter(), WeekMemory()
    for owner, names in ((normal, NORMAL), (change_filter, CHANGE_FILTER), (week, WEEK)):
        reader.fill(owner, names)
    k1, k2, k3, h1, h2, h3, calm = reader.take(7)
    normal.bounds = (k1, k2, k3, h1, h2, h3, calm)
    up1, up2, up3, down1, down2, down3 = reader.take(6)
    normal.sums = (up1, up2, up3, down1, down2, down3)
    normal.since_s = list(reader.take(6))
    week.means, week.shifted = array("d", reader.take(HOURS)), array("d", reader.take(HOURS))
    normal.week = week
    (length,) = reader.take(1)
    normal.recent = deque(reader.take(int(length)), maxlen=RECENT)
    if kind == PROFILED:
        profile = DayProfile(normal.interval_s)
        reader.fill(profile, PROFILE)
        profile.set_days(profile.days)
        profile.values = array("d", reader.take(int(DAY_S / profile.slot_s)))
        normal.profile = profile
    elif kind == FIRST_DAY:
        slot_s, first_slot, length = reader.take(3)
        normal.first_day = FirstDay(slot_s, 0.0)
        normal.first_day.first_slot = int(first_slot)
        normal.first_day.values = array("d", reader.take(int(length)))
    reader.end()
    return normal, change_filter


class _Reader:
    def __init__(self, numbers: tuple[float, ...]) -> None:
        self._numbers = numbers
        self._at = 0

    def take(self, count: int) -> tuple[float, ...]:
        numbers = self._numbers[self._at : self._at + count]
        if len(numbers) != count:
            raise ValueError("the state of a detector is truncated")
        self._at += count
        return numbers

    def end(self) -> None:
        if self._at != len(self._numbers):
            raise ValueError("the state of a detector is too long")

    def fill(self, owner: object, names: list[str]) -> None:
        for name, value in zip(names, self.take(len(names)), strict=True):
            setattr(owner, name, int(value) if name in INTEGERS else value)
