"""Probe runs and blocks of a service around a change: cost factors and conditions of the devices.

They are the input of the explanation of a change; conditions are those on both sides of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import NamedTuple

from costprobe.core.columns import number
from costprobe.core.records import BOARD, NS_PER_S, FieldValue, Point
from costprobe.core.schema import ASSUMED
from costprobe.drift.findings import Metric
from costprobe.drift.production import BlockBuilder
from costprobe.unit_costs.change import CostFactors, ProductionSums, as_one, kind_weights, work_of

# Number of runs before a change that represent the previous conditions.
BEFORE_RUNS = 300
# Kind of the events of annotations.
ANNOTATION = "annotation"

# Rows of `device` of a block that its conditions are read from.
DEVICE_ROWS = 30
# What a probe finds of the software that serves production on its device, too: not the probe's own model.
SHARED_SOFTWARE = ("driver", "device_name", BOARD, "server_version")

# Returns the newest rows of a device between two UTC ns, at most DEVICE_ROWS.
DeviceRows = Callable[[str, int, int], Sequence[Point]]


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
        is_assumed: Whether the price is an assumed one.
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
    is_assumed: bool = False

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


class BlockEffort(NamedTuple):
    """What a unit of work took in a block.

    Attributes:
        end_s: UTC in s of its end.
        log_time: Logarithm of the device time per unit of work.
        log_energy: Likewise of the energy; None if unknown.
    """

    end_s: float
    log_time: float
    log_energy: float | None = None


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
        is_assumed=cost is not None and cost.tags.get("plan") == ASSUMED,
    )


def joined_runs(probes: Iterable[Point], costs: Iterable[Point]) -> list[DetectionRun]:
    """Join rows of `probe` and `cost` that share a time to runs, oldest first."""
    priced = {row.time_ns: row for row in costs}
    runs = (run_of(row, priced.get(row.time_ns)) for row in probes)
    return sorted((run for run in runs if run is not None), key=lambda run: run.time_ns)


def control_of(sides: Iterable[Sequence[Sequence[Point]]]) -> float | None:
    """Return the time per inference of probes, later over earlier; None without any in both periods.

    Args:
        sides: Rows of `probe` of each in the earlier and in the later period.
    """
    runs = ([joined_runs(rows, ()) for rows in side] for side in sides)
    logs = [math.log(factors(new).time_s / factors(old).time_s) for old, new in runs if old and new]
    return math.exp(fmean(logs)) if logs else None


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


def signal_of(run: DetectionRun, signal: str) -> float | None:
    """Return a field of a run's conditions, or its batch; a yes or no as 1 or 0."""
    return run.batch if signal == "batch" else _number(run.device, signal)


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


def block_efforts(
    rows: Sequence[Point], periods: tuple[ProductionSums, ProductionSums], block_s: float
) -> list[BlockEffort]:
    """Return what a unit of work took in each block with enough traffic, oldest first.

    Args:
        rows: Rows of `cost` of a service and its models, oldest first.
        periods: Sums of two periods, which weight the kinds of work.
        block_s: Length of a block in s.
    """
    is_by_token = all(sums.total.tokens > 0 for sums in periods)
    if len({"" in sums.models for sums in periods}) > 1:
        periods = as_one(periods[0]), as_one(periods[1])
    weights = kind_weights(*periods, is_by_token=is_by_token)
    is_one = all(set(sums.models) == {""} for sums in periods)
    builder, found = BlockBuilder(block_s), []
    for _, window in groupby(rows, key=lambda row: row.time_ns):
        together = sorted(window, key=lambda row: row.tags.get("served_model", ""))
        for block in builder.add(together):
            sums = as_one(block.sums) if is_one else block.sums
            work = work_of(sums, weights)
            if block.has_traffic and sums.busy_s and work > 0:
                energy = math.log(sums.energy_j / work) if sums.energy_j else None
                found.append(BlockEffort(block.end_s, math.log(sums.busy_s / work), energy))
    return found


def service_runs(
    efforts: Sequence[BlockEffort],
    block_s: float,
    devices: Sequence[str],
    rows_of: DeviceRows,
    events: Sequence[Point] = (),
) -> list[DetectionRun]:
    """Return each block of a service as a run, oldest first.

    Args:
        efforts: What a unit of work took in each block, oldest first.
        block_s: Length of a block in s.
        devices: Devices of the service.
        rows_of: Returns their rows.
        events: Rows of `event` as from `events_of_service`: changed software is in the fingerprint.
    """
    changes_ns = [row.time_ns for row in events if software_change_of(row) is not None]
    runs = []
    for effort in efforts:
        end_ns = round(effort.end_s * NS_PER_S)
        start_ns = end_ns - round(block_s * NS_PER_S)
        sides = [device_conditions(rows_of(device, start_ns + 1, end_ns + 1)) for device in devices]
        energy = effort.log_energy
        runs.append(
            DetectionRun(
                time_ns=end_ns,
                batch=None,
                time_s=math.exp(effort.log_time),
                energy_j=None if energy is None else math.exp(energy),
                price_per_s=None,
                electricity_per_j=0.0,
                fingerprint=str(sum(changed_ns <= end_ns for changed_ns in changes_ns)),
                device=_together([side for side in sides if side]),
            )
        )
    return runs


def events_of_service(rows: Sequence[Point], service: str, devices: Sequence[str]) -> list[Point]:
    """Return the rows of `event` that may explain a change of a service.

    Annotations of the service, of its devices or of the host; changes of the driver, boards and servers that
    probes of its devices found.
    """
    found = {}
    for row in rows:
        tags = row.tags
        is_near = tags.get("device") is None or tags["device"] in devices
        if tags.get("kind") == ANNOTATION:
            if is_near and tags.get("service", service) == service and "probe" not in tags:
                found[row.time_ns, str(row.fields.get("title"))] = row
            continue
        change = software_change_of(row)
        if change and is_near and set(change.before) & set(SHARED_SOFTWARE):
            # Each probe of a device has the same event.
            found[row.time_ns, "software"] = row
    return sorted(found.values(), key=lambda row: row.time_ns)


def device_conditions(rows: Sequence[Point]) -> dict[str, float]:
    """Return the conditions of a device from its rows, as fields of the `probe` series."""
    if not rows:
        return {}
    # The clock of an idle device is lower: the busier half of the rows counts.
    busy = sorted(rows, key=lambda row: -(number(row, "util_pct") or 0.0))[: (len(rows) + 1) // 2]
    found = {
        "sm_clock_mhz": _mean(busy, "sm_clock_mhz"),
        "mem_clock_mhz": _mean(busy, "mem_clock_mhz"),
        "power_limit_w": number(rows[-1], "power_limit_w"),
        "temp_max_c": max((t for row in busy if (t := number(row, "temp_c"))), default=None),
        "ecc_uncorrected": number(rows[-1], "ecc_uncorrected"),
        "throttled_power_pct": _throttled_pct(rows, "throttle_power_s"),
        "throttled_thermal_pct": _throttled_pct(rows, "throttle_thermal_s"),
    }
    used, total = number(rows[-1], "mem_used_bytes"), number(rows[-1], "mem_total_bytes")
    found["mem_used_pct"] = 100 * used / total if used is not None and total else None
    return {name: value for name, value in found.items() if value is not None}


def _mean(rows: Sequence[Point], field: str) -> float | None:
    known = [value for row in rows if (value := number(row, field)) is not None]
    return fmean(known) if known else None


def _throttled_pct(rows: Sequence[Point], field: str) -> float | None:
    """Return the share of the time of all rows but the first; None if a row lacks the field."""
    seconds = [number(row, field) for row in rows[1:]]
    lasted_s = math.fsum(
        (later.time_ns - former.time_ns) / NS_PER_S for former, later in pairwise(rows)
    )
    if lasted_s <= 0 or any(value is None for value in seconds):
        return None
    return min(100.0, 100 * math.fsum(value or 0.0 for value in seconds) / lasted_s)


def _together(sides: Sequence[Mapping[str, float]]) -> dict[str, FieldValue]:
    """Return the means over the devices; of the temperature the highest, of errors the sum."""
    found: dict[str, FieldValue] = {}
    for name in dict.fromkeys(name for side in sides for name in side):
        values = [side[name] for side in sides if name in side]
        if name == "temp_max_c":
            found[name] = max(values)
        elif name == "ecc_uncorrected":
            found[name] = math.fsum(values)
        else:
            found[name] = fmean(values)
    return found
