"""A measured probe run, and the priced run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from costprobe.core.records import CostSample, Energy, FieldValue, Point, ProbeResult
from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.probe.energy import ProbeEnergy
from costprobe.domain.costing.probe.reported import NaiveTiming
from costprobe.domain.costing.probe.rolling import Rolled
from costprobe.domain.pricing.book import Terms


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A probe's result, joined with the sensor data of its steady-state window.

    Attributes:
        result: Result of the probe.
        energy: The device's energy in the window; None if unknown.
        energy_absent: Reason why it is unknown.
        activity: Conditions of the device in the window, as fields; only known ones.
        every_s: Seconds between runs.
        curve: Points of a batch search; empty if there was none.
        board: Permanent identity of the board, or of several boards in order; empty if there is none.
        naive: What common mistakes of timing report; empty if not asked for.
        load: Figures that only a point of a load curve has.
    """

    result: ProbeResult
    energy: Energy | None
    energy_absent: str
    activity: Mapping[str, FieldValue | None]
    every_s: float
    curve: Sequence[Mapping[str, float]] = ()
    board: str = ""
    naive: Sequence[NaiveTiming] = ()
    load: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """A priced probe run, from which the log line and the CLI's JSON are formatted.

    Attributes:
        result: Result of the probe.
        energy: Joules per inference; None if unknown.
        energy_absent: Reason why they are unknown.
        cost: Currency per inference; None if unknown.
        terms: The price terms in force; None without a price.
        rolled: Summaries of the rolling windows, by name.
        points: The rows of `probe` and `cost`.
        time_ns: UTC in ns of the window's end.
        emitted: Grams of CO2-equivalent per inference; None if unknown.
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
