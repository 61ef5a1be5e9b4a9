"""The workloads of a host, and the kinds of device on which each can run, as measured.

The load of each service, and of each device without one, is by hour and by day. The sizes of MIG
instances are read from the product names of boards and MIG devices. Source: NVIDIA's MIG user
guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo

from costprobe.core.hours import DeviceHistory
from costprobe.core.periods import HOUR_NS, HOURS_A_DAY, HOURS_A_WEEK
from costprobe.core.records import DEVICE_KINDS, natural
from costprobe.core.units import HOUR_S, significant
from costprobe.savings.evidence import ExpectedLoad, History
from costprobe.savings.history import BatchFigures, ColdStart, ProbeHistory, ServiceHistory
from costprobe.savings.supply import Placement, Watts
from costprobe.savings.workload import (
    HourLoad,
    WorkloadHistory,
    connected,
    measured_load,
    repeated_week,
    unit_of,
)

# Names of devices and of their services, and the probe of the model.
Group = tuple[tuple[str, ...], tuple[str, ...], str]
# Headroom above the peak of memory in use.
MEMORY_SPARE = 1.2

# Units of a load, the one that users count first.
UNITS = ("requests", "tokens_out", "inferences")
# The unit where a service counts none of these, and of a device without a service.
DEVICE_HOURS = "device_hours"
# An hour or a day of which less is known is unknown; a day of which more is known is scaled.
LEAST_SHARE = 0.9

# Product names, and the compute slices of the board.
_BOARDS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"\bA30\b"), 4),
    (re.compile(r"\b([AH][18]00|H20|G?H200|G?B[23]00)(?!\d)"), 7),
)
_PROFILE = re.compile(r"\bMIG (?:(\d+)c\.)?(\d+)g\.")


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """A workload with the placements that were measured.

    Attributes:
        workload: The workload.
        placements: That of now first.
        bound_ms: Configured bound of the median latency; None if there is none.
        missing: Measurements that would allow further placements, as commands.
    """

    workload: WorkloadHistory
    placements: Sequence[Placement]
    bound_ms: float | None = None
    missing: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """A service, or a device without one, with its hours.

    Attributes:
        workload: Load of its devices.
        service: Name of the service; empty without one.
        unit: One of UNITS, or DEVICE_HOURS: busy hours of its devices.
        amounts: Load by hour number since 1970.
        shares: Known share of each of these hours.
    """

    workload: WorkloadHistory
    service: str
    unit: str
    amounts: Mapping[int, float]
    shares: Mapping[int, float]


def measured_workloads(history: History) -> Iterator[MeasuredWorkload]:
    """Yield the workloads of a host: of services, of devices without any, and of these together."""
    groups: list[Group] = []
    present = {
        name: tuple(device for device in service.devices if device in history.devices)
        for name, service in history.services.items()
    }
    for devices in connected(present.values()):
        services = tuple(sorted(name for name, own in present.items() if set(own) & set(devices)))
        probe = history.models.get(services[0], "") if len(services) == 1 else ""
        groups.append((devices, services, probe))
    served = {device for devices, _, _ in groups for device in devices}
    for device in (name for name in _free_devices(history) if name not in served):
        groups += [((device,), (), probe) for probe in history.probes_on(device) or [""]]
    groups += [(devices, (), "") for devices in _together(history, [entry[0] for entry in groups])]
    loads: dict[object, Mapping[int, HourLoad]] = {}
    for group in groups:
        yield _with_placements(history, _measured(history, group, loads))
    for load in history.expected:
        yield from _expected(history, load)


def _free_devices(history: History) -> list[str]:
    """Return boards and slices; the host's CPUs only if there is nothing else."""
    devices = history.devices
    divided = {device.device.parent for device in devices.values()}
    chosen = [name for name, d in devices.items() if not d.device.is_host and name not in divided]
    return chosen or list(devices)


def _together(history: History, groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return sets of devices of the same model, or rented together, that several workloads use."""
    by_model: dict[str, list[str]] = {}
    for group in groups:
        for name in group:
            device = history.devices[name].device
            if device.is_board and name not in by_model.get(device.model, ()):
                by_model.setdefault(device.model, []).append(name)
    sets = {tuple(sorted(names, key=natural)) for names in by_model.values() if len(names) > 1}
    sets |= {tuple(sorted(names, key=natural)) for names in history.rented_together}
    return sorted(sets - set(groups), key=lambda names: natural(*names))


def _measured(
    history: History, group: Group, loads: dict[object, Mapping[int, HourLoad]]
) -> WorkloadHistory:
    devices, services, probe = group
    histories = [history.devices[name] for name in devices]
    users = [service for service in history.services.values() if {*service.devices} & {*devices}]
    unit = unit_of(users, len(devices), _probe_of(history, devices, probe))
    idle_pct = max(DEVICE_KINDS[device.device.kind].idle_hour_pct for device in histories)
    if (devices, unit) not in loads:
        # Several probes of a device are workloads of the same load.
        loads[devices, unit] = measured_load(histories, users, unit, idle_pct)
    subject = ", ".join(services) or probe
    span_hours = max(device.span_hours for device in histories)
    on = " and ".join(devices)
    return WorkloadHistory(
        name=f"{subject} on {on}" if subject else on,
        devices=devices,
        hours=loads[devices, unit],
        billed_hours=min(span_hours, max(len(device.known_hours) for device in histories)),
        span_hours=span_hours,
        origin=f"{'the rows of its service, and ' if unit else ''}the utilization of {on}",
        services=services,
        probe=probe,
        zone=history.zone,
        unit=unit,
        row_s=max((service.row_s for service in users), default=0.0),
    )


def _probe_of(history: History, devices: Sequence[str], probe: str) -> ProbeHistory | None:
    return next((p for p in history.probes if p.probe == probe and p.device in devices), None)


def _expected(history: History, load: ExpectedLoad) -> Iterator[MeasuredWorkload]:
    """Yield a configured load on each accelerator that its probe runs on, in a typical week."""
    for probe in history.probes:
        if probe.probe != load.probe or not probe.present.is_enough:
            continue
        if probe.device not in _free_devices(history):
            continue
        profile = [per_s / probe.present.throughput_per_s for per_s in load.per_s]
        now_h = history.devices[probe.device].now_ns // HOUR_NS
        workload = WorkloadHistory(
            name=probe.subject,
            devices=(probe.device,),
            hours=repeated_week(profile, now_h - HOURS_A_WEEK, history.zone),
            billed_hours=HOURS_A_WEEK,
            span_hours=HOURS_A_WEEK,
            origin=f"[[workload]] of {load.probe}",
            is_stated=True,
            probe=load.probe,
            zone=history.zone,
        )
        yield _with_placements(history, workload)


def _with_placements(history: History, workload: WorkloadHistory) -> MeasuredWorkload:
    own = _probe_of(history, workload.devices, workload.probe)
    now = _present(history, workload, own)
    bound_ms = None if own is None else own.bound_ms
    apart = [names for names in history.rented_together if _splits(names, workload.devices)]
    if apart:
        together = " and ".join(apart[0])
        needed = f"the answer for the whole host: {together} can only be released together"
        return MeasuredWorkload(workload, [now], bound_ms, [needed])
    if own is None:
        return MeasuredWorkload(workload, [now], bound_ms, [_probe_advice(workload)])
    if not own.present.is_enough:
        return MeasuredWorkload(workload, [now], bound_ms, [own.measurement_needed(own.device)])
    faster = [
        _placed(history, own, figures, own, now)
        for figures in _permitted(own, own.others, own)
        if figures.throughput_per_s > own.present.throughput_per_s
    ]
    elsewhere, missing_probes = _elsewhere(history, workload, own)
    return MeasuredWorkload(workload, [now, *faster, *elsewhere], bound_ms, missing_probes)


def _splits(rented_together: Sequence[str], devices: Sequence[str]) -> bool:
    """Return whether a workload uses some, but not all, of the devices of a host."""
    shared = set(rented_together) & set(devices)
    return bool(shared) and len(shared) < len(rented_together)


def _present(history: History, workload: WorkloadHistory, own: ProbeHistory | None) -> Placement:
    devices = [history.devices[name] for name in workload.devices]
    return Placement(
        device=workload.devices[0],
        words=" and ".join(workload.devices),
        held=len(devices),
        is_indivisible=any(
            set(names) <= set(workload.devices) for names in history.rented_together
        ),
        least=_least(devices, devices[0]),
        latency_p50_ms=None if own is None else own.present.latency_p50_ms,
        watts=_watts(devices[0], None if own is None else own.present),
        evidence="" if own is None else _evidence(own, own.present),
        cold_start=_cold_start(history, workload, own),
    )


def _cold_start(
    history: History, workload: WorkloadHistory, own: ProbeHistory | None
) -> ColdStart | None:
    """Return the start on the devices of now: that of the slowest service, else that of the probe."""
    stated_s = [history.services[name].cold_start_s for name in workload.services]
    known_s = [seconds for seconds in stated_s if seconds is not None]
    if known_s and len(known_s) == len(stated_s):
        return ColdStart(max(known_s), "stated in [[service]]")
    return None if own is None else history.cold_starts.get((own.probe, own.device))


def _elsewhere(
    history: History, workload: WorkloadHistory, own: ProbeHistory
) -> tuple[list[Placement], list[str]]:
    """Return the other kinds of device that run the model, and the probes that are missing."""
    placements, missing = [], []
    for name in history.devices:
        if not _is_other_kind(history, name, workload):
            continue
        probes = [p for p in history.probes if p.model == own.model and p.device == name]
        if not any(p.present.is_enough for p in probes):
            missing.append(own.measurement_needed(name))
        for other in probes:
            candidates = _permitted(own, (other.present, *other.others), other)
            if candidates:
                best = max(candidates, key=lambda figures: figures.throughput_per_s)
                placements.append(_placed(history, other, best, own, None))
    return placements, missing


def _probe_advice(workload: WorkloadHistory) -> str:
    if workload.services:
        names = " or ".join(workload.services)
        return f'[[workload]] with service = "{names}" and probe = the name of a probe of its model'
    return f"a [[probe]] of the model that runs on {' and '.join(workload.devices)}"


def _is_other_kind(history: History, name: str, workload: WorkloadHistory) -> bool:
    if name not in history.devices or name in workload.devices:
        return False
    now, other = history.devices[workload.devices[0]].device, history.devices[name].device
    return (now.kind, now.model) != (other.kind, other.model)


def _permitted(
    own: ProbeHistory, figures: Sequence[BatchFigures], other: ProbeHistory
) -> list[BatchFigures]:
    """Return the batches within the latency bound; without one, those that are no slower than now.

    Without a bound a device of another kind may also be as slow as it is at the batch it is probed at.
    """
    bound_ms = own.bound_ms
    if bound_ms is None:
        bound_ms = max(own.present.latency_p50_ms, other.present.latency_p50_ms)
    return [f for f in figures if f.is_enough and f.latency_p50_ms <= bound_ms]


def _placed(
    history: History,
    probe: ProbeHistory,
    figures: BatchFigures,
    own: ProbeHistory,
    now: Placement | None,
) -> Placement:
    """Return a batch of a probe as a placement: on the devices of now, or on another kind."""
    device = history.devices[probe.device]
    used = history.devices[own.device]
    name = probe.device if now is None else now.words
    return Placement(
        device=probe.device,
        words=f"{name}, batch {figures.batch}",
        speed=figures.throughput_per_s / own.present.throughput_per_s,
        held=0 if now is None else now.held,
        is_indivisible=now is not None and now.is_indivisible,
        least=_least([used], device) if now is None else now.least,
        latency_p50_ms=figures.latency_p50_ms,
        watts=_watts(device, figures),
        evidence=_evidence(probe, figures),
        cold_start=history.cold_starts.get((probe.probe, probe.device))
        if now is None
        else now.cold_start,
    )


def _least(used: Sequence[DeviceHistory], device: DeviceHistory) -> int:
    """Return how many devices hold the memory in use; those of now if it is unknown.

    On a CPU the host's memory is used, which is not compared.
    """
    if device.device.is_host:
        return 1
    amounts = [history.mem_used_bytes_max for history in used]
    known = [amount for amount in amounts if amount is not None]
    if len(known) < len(amounts) or not device.mem_total_bytes:
        return len(used)
    return max(1, math.ceil(sum(known) * MEMORY_SPARE / device.mem_total_bytes))


def _watts(device: DeviceHistory, figures: BatchFigures | None) -> Watts | None:
    if figures is None or figures.busy_w is None:
        return None
    idle_w = figures.idle_w if figures.idle_w is not None else device.idle_w
    return None if idle_w is None else Watts(idle_w, max(idle_w, figures.busy_w))


def _evidence(probe: ProbeHistory, figures: BatchFigures) -> str:
    per_s, p50_ms = significant(figures.throughput_per_s), significant(figures.latency_p50_ms)
    subject = f"{probe.subject}, batch {figures.batch}"
    return f"{subject}: {per_s} a second, p50 {p50_ms} ms ({figures.words})"


def load_subjects(history: History) -> Iterator[LoadSubject]:
    """Yield each service with its load, and each device without one."""
    seen: set[tuple[str, ...]] = set()
    of_workloads: set[str] = set()
    for measured in measured_workloads(history):
        workload = measured.workload
        # Devices of one model are also compared together, and an expected load has no history.
        if workload.devices in seen or (len(workload.devices) > 1 and not workload.services):
            continue
        seen.add(workload.devices)
        of_workloads.update(workload.services)
        for service in workload.services or ("",):
            yield _load_of(workload, service, history.services.get(service))
    for service in sorted(history.services.keys() - of_workloads):
        # Its devices are unknown, or have no rows.
        nowhere = WorkloadHistory(service, (), {}, 0, 1, "", (service,))
        yield _load_of(nowhere, service, history.services[service])


def _load_of(workload: WorkloadHistory, name: str, service: ServiceHistory | None) -> LoadSubject:
    for unit in UNITS:
        if service is not None and unit not in service.missing and service.most_per_s(unit):
            covered = {
                number: math.fsum(hour.covered_s) / HOUR_S for number, hour in service.hours.items()
            }
            shares = {number: share for number, share in covered.items() if share >= LEAST_SHARE}
            amounts = {number: sum(service.hours[number].counts[unit]) for number in shares}
            return LoadSubject(workload, name, unit, amounts, shares)
    busy = {number: hour.mean for number, hour in workload.hours.items()}
    return LoadSubject(workload, name, DEVICE_HOURS, busy, dict.fromkeys(busy, 1.0))


def day_of(time_s: int, zone: tzinfo | None) -> date:
    """Return the day of a UTC time in s; in the host's own zone for None."""
    return datetime.fromtimestamp(time_s, UTC).astimezone(zone).date()


def by_day(
    amounts: Mapping[int, float],
    shares: Mapping[int, float],
    zone: tzinfo | None,
    first: date,
    combined: Callable[[list[float]], float],
) -> list[float | None]:
    """Return a value for each day before a date; None where too little of a day is known.

    A sum is scaled to the whole day.
    """
    days: dict[int, list[float]] = {}
    known_h: dict[int, float] = {}
    for number, amount in amounts.items():
        day = day_of(number * int(HOUR_S), zone).toordinal()
        days.setdefault(day, []).append(amount)
        known_h[day] = known_h.get(day, 0.0) + min(1.0, shares[number])
    values: list[float | None] = []
    for day in range(min(days, default=first.toordinal()), first.toordinal()):
        share = min(1.0, known_h.get(day, 0.0) / HOURS_A_DAY)
        if share < LEAST_SHARE:
            values.append(None)
        else:
            value = combined(days[day])
            values.append(value / share if combined is math.fsum else value)
    return values


def slices_of(model: str) -> int | None:
    """Return the compute slices of a MIG device from its name; None if unknown."""
    match = _PROFILE.search(model)
    return int(match[1] or match[2]) if match else None


def board_slices(model: str) -> int:
    """Return the compute slices of a MIG device's board from its name; 0 if unknown."""
    return next((slices for pattern, slices in _BOARDS if pattern.search(model)), 0)
