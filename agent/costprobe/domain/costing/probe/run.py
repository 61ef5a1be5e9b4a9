"""A probe run: as it was measured, and as it was priced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costprobe.core.records import CostSample, Energy, FieldValue, Point, ProbeResult
from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.probe.energy import ProbeEnergy
from costprobe.domain.costing.probe.rolling import Rolled
from costprobe.domain.pricing.book import Terms


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A probe's result joined with what the sensors measured in its steady-state window.

    Attributes:
        result: What the probe measured.
        energy: The device's energy in the window; None where it is unknown.
        energy_absent: Why it is unknown.
        activity: Conditions of the device in the window, as fields, where they are known.
        every_s: Seconds between runs.
        curve: Points of a batch search; empty if there was none.
        board: Lasting identity of the board it ran on, of several in their order; empty where
            there is none.
    """

    result: ProbeResult
    energy: Energy | None
    energy_absent: str
    activity: Mapping[str, FieldValue | None]
    every_s: float
    curve: Sequence[Mapping[str, float]] = ()
    board: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The outcome of one probe run; the log line and the CLI's JSON are made of it.

    Attributes:
        result: What the probe measured.
        energy: Joules per inference; None where they are unknown.
        energy_absent: Why they are unknown.
        cost: Money per inference; None where nothing prices it.
        terms: The price terms in force; None where nothing prices the device.
        rolled: Summaries of the rolling windows, by name.
        points: The rows of `probe` and `cost`.
        time_ns: UTC in ns of the window's end.
        emitted: Grams of CO2-equivalent per inference; None where unknown.
        contended: Whether others used the device during the run; None where unknown.
    """

    result: ProbeResult
    energy: ProbeEnergy | None
    energy_absent: str
    cost: CostSample | None
    terms: Terms | None
    rolled: Mapping[str, Rolled]
    points: tuple[Point, ...]
    time_ns: int
    emitted: Emission | None = None
    contended: bool | None = None
