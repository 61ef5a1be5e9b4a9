"""Blocks of a service as runs, with the conditions of its devices: input of the explanation of a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean
from typing import NamedTuple

from costprobe.core.records import BOARD, NS_PER_S, FieldValue, Point
from costprobe.core.row_values import number
from costprobe.domain.costing.comparison.production_sums import ProductionSums
from costprobe.domain.costing.comparison.production_work import as_one, kind_weights, work_of
from costprobe.domain.detection.production_block import BlockBuilder
from costprobe.domain.detection.runs import ANNOTATION, DetectionRun, software_change_of

# Rows of `device` of a block that its conditions are read from.
DEVICE_ROWS = 30
# What a probe finds of the software that serves production on its device, too: not the probe's own model.
SHARED_SOFTWARE = ("driver", "device_name", BOARD, "server_version")

# Returns the newest rows of a device between two UTC ns, at most DEVICE_ROWS.
DeviceRows = Callable[[str, int, int], Sequence[Point]]


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
        sides = [_conditions(rows_of(device, start_ns + 1, end_ns + 1)) for device in devices]
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


def _conditions(rows: Sequence[Point]) -> dict[str, float]:
    """Return the conditions of a device in a block, as fields of the `probe` series."""
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
