"""Probe runs as input of a drift's explanation: cost factors and conditions of the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from costprobe.core.records import FieldValue, Point
from costprobe.domain.costing.comparison.change import CostFactors
from costprobe.domain.detection.conditions import Conditions, SignalSample
from costprobe.domain.detection.settings import Metric

# Number of runs before a change that represent the previous conditions.
BEFORE_RUNS = 300
# Kind of the events of annotations.
ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class DetectionRun:
    """One run of a probe; None if unknown.

    Attributes:
        time_ns: UTC in ns.
        batch: Items per forward pass.
        time_s: Device-seconds per inference.
        energy_j: Joules per inference.
        price_per_s: Currency per device-second.
        electricity_per_j: Currency per joule; 0 where the price includes it.
        fingerprint: Hash of the software and model.
        device: Conditions of the device, fields of the `probe` series.
        currency: ISO 4217 code of the prices; empty if unknown.
    """

    time_ns: int
    batch: int | None
    time_s: float
    energy_j: float | None
    price_per_s: float | None
    electricity_per_j: float
    fingerprint: str
    device: Mapping[str, FieldValue]
    currency: str = ""

    def value(self, metric: Metric, prices: CostFactors) -> float | None:
        """Return the run's value of a monitored series; a cost at given prices."""
        if metric == "cost":
            electricity = prices.electricity_per_j * (self.energy_j or 0.0)
            return prices.price_per_s * self.time_s + electricity
        if metric == "energy":
            return self.energy_j
        if metric == "latency":
            return _number(self.device, "latency_p50_ms")
        return 1 / self.time_s


@dataclass(frozen=True, slots=True)
class SoftwareChange:
    """Versions and hashes of a `software` event, before and after."""

    time_ns: int
    before: Mapping[str, str]
    after: Mapping[str, str]


def run_of(probe: Point, cost: Point | None) -> DetectionRun | None:
    """Return a run from its rows of `probe` and `cost`; None without throughput."""
    throughput_per_s = _number(probe.fields, "throughput_per_s")
    if not throughput_per_s:
        return None
    energy_j = _number(probe.fields, "energy_per_inference_j")
    hardware = _number(cost.fields, "cost_hardware") if cost else None
    electricity = (_number(cost.fields, "cost_energy") if cost else None) or 0.0
    batch = probe.tags.get("batch", "")
    return DetectionRun(
        time_ns=probe.time_ns,
        batch=int(batch) if batch.isdigit() else None,
        time_s=1 / throughput_per_s,
        energy_j=energy_j,
        price_per_s=None if hardware is None else hardware * throughput_per_s,
        electricity_per_j=electricity / energy_j if energy_j else 0.0,
        fingerprint=str(probe.fields.get("fingerprint", "")),
        device=probe.fields,
        currency=cost.tags.get("currency", "") if cost else "",
    )


def joined_runs(probes: Iterable[Point], costs: Iterable[Point]) -> list[DetectionRun]:
    """Join rows of `probe` and `cost` that share a time to runs, oldest first."""
    priced = {row.time_ns: row for row in costs}
    runs = (run_of(row, priced.get(row.time_ns)) for row in probes)
    return sorted((run for run in runs if run is not None), key=lambda run: run.time_ns)


def software_change_of(event: Point) -> SoftwareChange | None:
    """Parse a row of `event`; None unless it is a software change."""
    if event.tags.get("kind") != "software":
        return None
    keys = str(event.fields.get("cause", "")).split(", ")
    return SoftwareChange(
        event.time_ns,
        _versions(keys, str(event.fields.get("before", ""))),
        _versions(keys, str(event.fields.get("after", ""))),
    )


def factors(runs: Sequence[DetectionRun]) -> CostFactors:
    """Return the median of each cost factor over a period.

    Without prices a device-second counts as one unit of money.
    """
    energies = [run.energy_j for run in runs if run.energy_j is not None]
    prices = [run.price_per_s for run in runs if run.price_per_s is not None]
    return CostFactors(
        price_per_s=median(prices) if prices else 1.0,
        time_s=median(run.time_s for run in runs),
        electricity_per_j=median(run.electricity_per_j for run in runs),
        energy_j=median(energies) if energies else 0.0,
    )


def conditions(runs: Sequence[DetectionRun], software: Mapping[str, str]) -> Conditions:
    """Return the conditions of the device and its probe in a period.

    Args:
        runs: Runs of the period, oldest first; at least one.
        software: Versions and hashes at its end.
    """
    ecc = _values(runs, "ecc_uncorrected")
    mem_used_pct = _sample(_values(runs, "mem_used_pct"))
    return Conditions(
        software=software,
        batch=runs[-1].batch,
        sm_clock_mhz=_sample(_values(runs, "sm_clock_mhz")),
        throttled_power_pct=_sample(_values(runs, "throttled_power_pct")),
        throttled_thermal_pct=_sample(_values(runs, "throttled_thermal_pct")),
        temp_c=_sample(_values(runs, "temp_max_c")),
        contended_share=_sample(_values(runs, "contended")),
        ecc_uncorrected=int(max(ecc)) if ecc else None,
        mem_clock_mhz=_sample(_values(runs, "mem_clock_mhz")),
        power_limit_w=_sample(_values(runs, "power_limit_w")),
        tokens_in=_sample(_values(runs, "tokens_in")),
        tokens_out=_sample(_values(runs, "tokens_out")),
        mem_used_share=mem_used_pct
        and SignalSample(mem_used_pct.mean / 100, mem_used_pct.spread / 100, mem_used_pct.count),
    )


_FIELDS = {"temp_c": "temp_max_c", "contended_share": "contended", "mem_used_share": "mem_used_pct"}


def signal_of(run: DetectionRun, signal: str) -> float | None:
    """Return a run's value of a signal, named as in Conditions, in the unit of its field."""
    if signal == "batch":
        return run.batch
    return _number(run.device, _FIELDS.get(signal, signal))


def _values(runs: Sequence[DetectionRun], field: str) -> list[float]:
    return [value for run in runs if (value := _number(run.device, field)) is not None]


def _sample(values: Sequence[float]) -> SignalSample | None:
    return SignalSample(fmean(values), pstdev(values), len(values)) if values else None


def _number(fields: Mapping[str, FieldValue], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) else None


def _versions(keys: Sequence[str], text: str) -> dict[str, str]:
    """Parse "driver 550.54, torch 2.13"; a value may contain commas and ends at the next key."""
    versions = {}
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        following_text = text.removeprefix(f"{key} ")
        end = len(following_text) if following is None else following_text.find(f", {following} ")
        versions[key] = following_text[: end if end >= 0 else len(following_text)]
        text = following_text[end + 2 :] if end >= 0 else ""
    return versions
