"""Probe runs as input of a drift's explanation: cost factors and conditions of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from costprobe.core.records import FieldValue, Point
from costprobe.domain.costing.comparison.change import CostFactors
from costprobe.domain.detection.causes import Conditions

# Number of runs before a change that represent the previous conditions.
BEFORE_RUNS = 300


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
    """

    time_ns: int
    batch: int | None
    time_s: float
    energy_j: float | None
    price_per_s: float | None
    electricity_per_j: float
    fingerprint: str
    device: Mapping[str, FieldValue]


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
    )


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
        software: Versions and hashes; only the fingerprint if nothing else is known.
    """
    contended = [bool(run.device["contended"]) for run in runs if "contended" in run.device]
    ecc = _of(runs, "ecc_uncorrected", max)
    mem_used_pct = _of(runs, "mem_used_pct", fmean)
    return Conditions(
        software=software or {"fingerprint": runs[-1].fingerprint},
        batch=runs[-1].batch,
        sm_clock_mhz=_of(runs, "sm_clock_mhz", fmean),
        throttled_power_pct=_of(runs, "throttled_power_pct", fmean),
        throttled_thermal_pct=_of(runs, "throttled_thermal_pct", fmean),
        temp_c=_of(runs, "temp_max_c", fmean),
        contended_share=sum(contended) / len(contended) if contended else None,
        ecc_uncorrected=None if ecc is None else int(ecc),
        mem_used_share=None if mem_used_pct is None else mem_used_pct / 100,
    )


def _of(
    runs: Sequence[DetectionRun], field: str, summary: Callable[[Iterable[float]], float]
) -> float | None:
    values = [value for run in runs if (value := _number(run.device, field)) is not None]
    return summary(values) if values else None


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
