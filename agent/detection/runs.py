"""Probe runs as the explanation of a drift needs them: what they cost, and how the device was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from agent.costing.change import CostFactors
from agent.detection.causes import Conditions
from agent.model import FieldValue, Point

# Enough of the runs before a change to tell how things were, and not how they were last month.
BEFORE_RUNS = 300


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a probe; None is not known.

    Attributes:
        time_ns: UTC in ns.
        batch: Items per forward pass.
        time_s: Device-seconds per inference.
        energy_j: Joules per inference.
        price_per_s: Currency per device-second.
        electricity_per_j: Currency per joule; 0 where the price includes it.
        fingerprint: Hash of the software and model.
        device: The device's conditions, fields of the `probe` series.
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
    """What a `software` event said: versions and hashes, before and after."""

    time_ns: int
    before: Mapping[str, str]
    after: Mapping[str, str]


def run_of(probe: Point, cost: Point | None) -> Run | None:
    """A run from its rows of `probe` and `cost`; None if the first says no throughput."""
    throughput_per_s = _number(probe.fields, "throughput_per_s")
    if not throughput_per_s:
        return None
    energy_j = _number(probe.fields, "energy_per_inference_j")
    hardware = _number(cost.fields, "cost_hardware") if cost else None
    electricity = (_number(cost.fields, "cost_energy") if cost else None) or 0.0
    batch = probe.tags.get("batch", "")
    return Run(
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
    """What a row of `event` says of software; None if it is of another kind."""
    if event.tags.get("kind") != "software":
        return None
    keys = str(event.fields.get("cause", "")).split(", ")
    return SoftwareChange(
        event.time_ns,
        _versions(keys, str(event.fields.get("before", ""))),
        _versions(keys, str(event.fields.get("after", ""))),
    )


def factors(runs: Sequence[Run]) -> CostFactors:
    """What an inference cost in a period: the median of each factor.

    Where nothing prices the runs, a device-second counts as one unit of money.
    """
    energies = [run.energy_j for run in runs if run.energy_j is not None]
    prices = [run.price_per_s for run in runs if run.price_per_s is not None]
    return CostFactors(
        price_per_s=median(prices) if prices else 1.0,
        time_s=median(run.time_s for run in runs),
        electricity_per_j=median(run.electricity_per_j for run in runs),
        energy_j=median(energies) if energies else 0.0,
    )


def conditions(runs: Sequence[Run], software: Mapping[str, str]) -> Conditions:
    """How the device and its probe were in a period.

    Args:
        runs: The period's runs, oldest first; at least one.
        software: Versions and hashes; the fingerprint alone where nothing more is known.
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
    runs: Sequence[Run], field: str, summary: Callable[[Iterable[float]], float]
) -> float | None:
    values = [value for run in runs if (value := _number(run.device, field)) is not None]
    return summary(values) if values else None


def _number(fields: Mapping[str, FieldValue], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) else None


def _versions(keys: Sequence[str], text: str) -> dict[str, str]:
    """Versions from "driver 550.54, torch 2.13": a value may hold commas, a key's name ends it."""
    versions = {}
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        rest = text.removeprefix(f"{key} ")
        end = len(rest) if following is None else rest.find(f", {following} ")
        versions[key] = rest[: end if end >= 0 else len(rest)]
        text = rest[end + 2 :] if end >= 0 else ""
    return versions
