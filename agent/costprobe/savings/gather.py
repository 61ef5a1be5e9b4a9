"""Stored rows, prices and load curves, read for savings.

Prices of devices are those in force, and every plan as if it applied from today.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import RowColumns, as_number, number, numbers
from costprobe.core.hours import (
    EDGE_NS,
    DeviceHistory,
    add_packed,
    add_rows,
    is_on,
)
from costprobe.core.periods import WEEK_NS
from costprobe.core.records import (
    DEVICE_KINDS,
    NS_PER_S,
    TOGETHER,
    Device,
    Point,
    natural,
    parse_kind,
)
from costprobe.core.schema import RUN_FIELDS, UNITS, WORK, WORK_FIELDS, part_words
from costprobe.core.units import KWH_J
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.plans import OwnedPlan, Plan, SpotPlan
from costprobe.pricing.prices import StoredPrices
from costprobe.probing.load_curve import LoadCurve, curves_from_rows
from costprobe.probing.settings import AnyProbeConfig, ProbeConfig, ServedProbeConfig
from costprobe.savings.evidence import BY_THE_HOUR, ExpectedLoad, History, LoadEvidence
from costprobe.savings.history import (
    Known,
    ServiceHistory,
    measured_cold_starts,
    plain_run,
    probe_histories,
)
from costprobe.savings.placements import board_slices, slices_of
from costprobe.savings.served import ServedCurve
from costprobe.savings.settings import WorkloadConfig
from costprobe.savings.supply import DevicePrice
from costprobe.savings.where import PRECISIONS, MeasuredBatch, MeasuredModel
from costprobe.serving.settings import ServiceConfig
from costprobe.serving.tokens import production_load

# What a run says of its memory and precision.
_OF_RUNS: Final = frozenset({"mem_used_pct", "bytes_per_pass", "flop_per_pass", "mfu_pct"})
_PORTS: Final = {"http": 80, "https": 443}
# A device without a row for longer than this, while others have rows, was removed.
GONE_AFTER_NS = 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class SavingsSections:
    """What savings use of a configuration, beside its prices.

    Attributes:
        probes: The configured probes.
        services: The configured services.
        workloads: The configured workloads.
        aggregate_s: Time over which readings of devices are aggregated to a row, in s.
    """

    probes: Sequence[AnyProbeConfig]
    services: Sequence[ServiceConfig]
    workloads: Sequence[WorkloadConfig]
    aggregate_s: float


def history_of(
    sections: SavingsSections,
    stored: StoredPrices,
    reader: StoreReader,
    since_ns: int,
    plans: Sequence[Plan] = (),
    runs: Sequence[RowColumns] | None = None,
) -> History:
    """Read the history.

    Args:
        sections: What is used of the configuration.
        stored: The prices of this host.
        reader: The store.
        since_ns: Start in UTC ns.
        plans: Plans besides those of the configuration.
        runs: RUN_FIELDS of the rows of `probe` since then; None to read them.
    """
    now_ns = time.time_ns()
    devices = devices_in(reader, since_ns)
    sweeps = list(reader.points("sweep", since_ns, now_ns))
    if runs is None:
        runs = reader.columns("probe", since_ns, now_ns, fields=RUN_FIELDS)
    # Aggregated rows are excluded, because they are not samples.
    runs = [part for part in runs if not part.period_s]
    probes = probe_histories(runs, sweeps, _known(sections.probes))
    ends_ns: dict[str, list[int]] = {}
    for part in runs:
        ends_ns.setdefault(part.tags.get("device", ""), []).extend(part.times_ns)
    every_s = sections.aggregate_s
    histories = {
        device.name: _device_history(reader, device, (since_ns, now_ns), ends_ns, every_s)
        for device in devices
    }
    prices = _prices_of(stored, devices, plans, now_ns)
    carbon = stored.carbon_book(devices)
    grams = {device.name: carbon.intensity(device.name, now_ns) for device in devices}
    return History(
        devices=histories,
        probes=probes,
        services=_services(reader, sections.services, since_ns, now_ns),
        models={
            load.service: load.probe for load in sections.workloads if load.service is not None
        },
        models_of_devices={
            load.as_device: load.probe for load in sections.workloads if load.as_device is not None
        },
        expected=[
            ExpectedLoad(load.probe, load.profile())
            for load in sections.workloads
            if load.is_expected
        ],
        cold_starts=measured_cold_starts(reader.points("cold_start", 0, now_ns)),
        load_curves=_load_evidence(reader, sections.services, sections.probes, now_ns),
        rented_together=_rented_together(stored.plans, histories, now_ns),
        prices=prices,
        grams_per_kwh={name: found.g_per_j * KWH_J for name, found in grams.items() if found},
        zone=ZoneInfo(stored.electricity.timezone) if stored.electricity else None,
    )


def devices_in(reader: StoreReader, since_ns: int) -> list[Device]:
    """Return the present devices; absent ones must not share the host's price."""
    newest: dict[str, Point] = {}
    for row in reader.last("device", time.time_ns()):
        name = row.tags.get("device", "")
        identity = newest.get(name)
        if row.time_ns >= since_ns and parse_kind(row.tags.get("kind", "")):
            newest[name] = row if identity is None or row.time_ns > identity.time_ns else identity
    last_ns = max((row.time_ns for row in newest.values()), default=0)
    return [
        _device(newest[name])
        for name in sorted(newest, key=natural)
        if newest[name].time_ns > last_ns - GONE_AFTER_NS
    ]


def _device(row: Point) -> Device:
    tags = row.tags
    name, model = tags["device"], tags.get("model", "")
    kind = parse_kind(tags["kind"])
    if kind is None:
        raise ValueError(f"{tags['kind']!r} is not a kind of device")
    is_slice = DEVICE_KINDS[kind].is_slice
    memory_bytes = number(row, "mem_total_bytes")
    return Device(
        name,
        kind,
        tags.get("uuid", ""),
        model,
        memory_bytes=None if memory_bytes is None else int(memory_bytes),
        parent=name.partition(".")[0] if is_slice else "",
        slices=(slices_of(model) or 0) if is_slice else 0,
        slices_of=board_slices(model) if is_slice else 0,
    )


def _device_history(
    reader: StoreReader,
    device: Device,
    span: tuple[int, int],
    ends_ns: Mapping[str, Sequence[int]],
    every_s: float,
) -> DeviceHistory:
    since_ns, now_ns = span
    device_ends_ns = sorted(
        end_ns for names, times in ends_ns.items() if is_on(names, device.name) for end_ns in times
    )
    history = DeviceHistory(device, now_ns, device_ends_ns)
    history.mem_total_bytes = device.memory_bytes
    tags = {"device": device.name, "uuid": device.uuid}
    hours, rows = reader.loads(since_ns, now_ns, tags, edge_ns=EDGE_NS)
    for hour_ns, packed in hours:
        add_packed(history, hour_ns, packed)
    for (start_ns, end_ns), found in rows.items():
        # A row at the start of the range counts in full.
        within = start_ns if start_ns > since_ns else 0, end_ns
        add_rows(history, ((end, values) for _, end, values in found), every_s, within)
    return history


def _services(
    reader: StoreReader, configured: Sequence[ServiceConfig], since_ns: int, now_ns: int
) -> dict[str, ServiceHistory]:
    """Return the work of services, and the devices that they use."""
    held = {service.name: set(service.devices) for service in configured}
    for series in reader.series("cost", {"basis": "serving"}):
        names = series.tags.get("device", "").split(TOGETHER)
        held.setdefault(series.tags.get("service", ""), set()).update(names)
    stated_s = {service.name: service.cold_start_s for service in configured}
    parts = {service.name: part_words(service.row_tags) for service in configured}
    services = {
        name: ServiceHistory(
            name, tuple(sorted(devices, key=natural)), stated_s.get(name), parts.get(name, "")
        )
        for name, devices in held.items()
    }
    for part in reader.columns("serving", since_ns, now_ns, fields=WORK_FIELDS):
        service = services.get(part.tags.get("service", ""))
        if service is None or "served_model" in part.tags:
            continue  # a part of the service's own row
        _add_windows(service, part)
    return services


def _add_windows(service: ServiceHistory, rows: RowColumns) -> None:
    """Add the windows of a service.

    An aggregated row has the sum of its windows, the last of which ends with the row; the first one
    began before the period of the row.
    """
    columns = [rows.column(name) for name in ("window_s", "complete", *WORK)]
    for end_ns, window_s, complete, *work in zip(rows.ends_ns, *columns, strict=True):
        counts = dict(zip(UNITS, map(as_number, work), strict=False))
        is_counted = any(count is not None for count in counts.values())
        service.add(
            end_ns - int((as_number(window_s) or 0.0) * NS_PER_S),
            end_ns,
            counts,
            is_active=any(map(as_number, work)),
            is_complete=is_counted and complete is not False,
        )


def _known(probes: Sequence[AnyProbeConfig]) -> dict[str, Known]:
    return {
        probe.name: Known(
            # Probes with different input shapes are different workloads.
            model=str((probe.identity, probe.weights, probe.inputs)),
            bound_ms=None if probe.latency_bound_s is None else probe.latency_bound_s * 1000,
        )
        for probe in probes
        if isinstance(probe, ProbeConfig)
    }


def measured_models(
    reader: StoreReader, probes: Sequence[AnyProbeConfig], since_ns: int
) -> list[MeasuredModel]:
    """Return each probe on each whole board, from the runs of its present software and its last sweep.

    Probes of servers are left out: a request is no pass. The memory in use is that of the process in a
    sweep, otherwise between the bytes of its weights and state, and what all processes took of the board.

    Args:
        reader: The store.
        probes: The configured probes.
        since_ns: UTC ns.

    Raises:
        StoreError: The store cannot be read.
    """
    now_ns = time.time_ns()
    sweeps = list(reader.points("sweep", since_ns, now_ns))
    runs = reader.columns("probe", since_ns, now_ns, fields=RUN_FIELDS | _OF_RUNS)
    runs = [part for part in runs if not part.period_s and plain_run(part.tags)]
    boards = {device.name: device for device in devices_in(reader, since_ns) if device.is_board}
    types = {probe.name: probe.measured_dtype for probe in probes if isinstance(probe, ProbeConfig)}
    served = {probe.name for probe in probes} - types.keys()
    runs = [part for part in runs if part.tags.get("probe") not in served]
    sweeps = [row for row in sweeps if row.tags.get("probe") not in served]
    used: dict[tuple[str, ...], tuple[float | None, float | None]] = {}
    peaks: dict[tuple[str, ...], float] = {}
    for part in sorted(runs, key=lambda part: part.times_ns[-1]):
        place = tuple(part.tags.get(tag, "") for tag in ("probe", "device", "batch"))
        total = boards[place[1]].memory_bytes if place[1] in boards else None
        pct = max(part.numbers("mem_used_pct"), default=0.0)
        held = max(part.numbers("bytes_per_pass"), default=0.0)
        used[place] = held or None, total * pct / 100 if total and pct else None
        peak = _peak_flop_per_s(part)
        if peak is not None:
            peaks[place[:2]] = peak
    for row in sweeps:
        place = tuple(row.tags.get(tag, "") for tag in ("probe", "device", "batch"))
        peak_bytes = number(row, "peak_memory_bytes")
        if peak_bytes:
            used[place] = peak_bytes, peak_bytes
    paid = _newest_costs(reader, now_ns)
    found = []
    for history in probe_histories(runs, sweeps, _known(probes)):
        if history.device in boards:
            figures = (history.present, *(one for one in history.others if one.is_enough))
            place = history.probe, history.device
            batches = (
                MeasuredBatch(one, *used.get((*place, str(one.batch)), (None, None)))
                for one in figures
            )
            precision = PRECISIONS.get(types.get(history.probe) or "", "fp16")
            found.append(
                MeasuredModel(
                    history,
                    boards[history.device],
                    tuple(batches),
                    precision,
                    peaks.get(place),
                    paid.get(place),
                )
            )
    return found


def served_curves(
    reader: StoreReader,
    probes: Sequence[AnyProbeConfig],
    services: Sequence[ServiceConfig],
    since_ns: int,
) -> list[ServedCurve]:
    """Return the newest load curve of each probe of a server on each of its devices.

    Args:
        reader: The store.
        probes: The configured probes.
        services: The configured services.
        since_ns: UTC ns.

    Raises:
        StoreError: The store cannot be read.
    """
    boards = {device.name: device for device in devices_in(reader, since_ns) if device.is_board}
    found = []
    for probe in probes:
        if isinstance(probe, ServedProbeConfig):
            newest = {one.device: one for one in _curves(reader, probe, since_ns, time.time_ns())}
            own = tuple(one for one in services if probe in probes_of([probe], one))
            for device, curve in newest.items():
                names = device.split(TOGETHER)
                whole = tuple(boards[name] for name in names if name in boards)
                whole = whole if len(whole) == len(names) else ()
                found.append(ServedCurve(probe, curve, whole, own))
    return found


def _curves(
    reader: StoreReader, probe: ServedProbeConfig, since_ns: int, now_ns: int
) -> list[LoadCurve]:
    """Return the load curves of a probe, in order of time, with its service level."""
    rows = reader.points("sweep", since_ns, now_ns, {"probe": probe.name})
    return curves_from_rows(rows, probe.slo.bounds_ms if probe.slo else {})


def _newest_costs(reader: StoreReader, now_ns: int) -> dict[tuple[str, str], tuple[float, str]]:
    """Return the cost of an inference of the newest run, and its currency, by probe and device."""
    found = {}
    for row in sorted(reader.last("cost", now_ns), key=lambda row: row.time_ns):
        cost = number(row, "cost_per_inference")
        if cost is not None and row.tags.get("basis") == "probe":
            place = row.tags.get("probe", ""), row.tags.get("device", "")
            found[place] = cost, row.tags.get("currency", "")
    return found


def _peak_flop_per_s(runs: RowColumns) -> float | None:
    """Return the peak rate that the utilization of the newest run is a share of; None if it has none."""
    names = ("flop_per_pass", "mfu_pct", "throughput_per_s")
    flop, pct, per_s = (as_number(runs.column(name)[-1]) for name in names)
    batch = runs.tags.get("batch", "")
    if not (flop and pct and per_s and batch.isdigit()):
        return None
    return flop * per_s / int(batch) / (pct / 100)


def _rented_together(
    plans: Sequence[Plan], devices: Mapping[str, DeviceHistory], now_ns: int
) -> list[tuple[str, ...]]:
    """Return the groups of devices that share one price: of a host or an instance."""
    day = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC).date()
    in_force = [plan for plan in plans if plan.valid_from <= day]
    dedicated = {plan.device for plan in in_force if plan.device is not None}
    general = [plan for plan in in_force if plan.device is None]
    newest = max(general, key=lambda plan: plan.valid_from, default=None)
    if newest is not None and newest.unit != "host":
        return []
    names = [
        name
        for name, history in devices.items()
        if history.device.is_board and name not in dedicated
    ]
    return [tuple(names)] if len(names) > 1 else []


def _prices_of(
    stored: StoredPrices, devices: Sequence[Device], plans: Sequence[Plan], now_ns: int
) -> dict[str, list[DevicePrice]]:
    """Return the prices of each device, the one in force first.

    Args:
        stored: The prices of this host.
        devices: Every device of the host.
        plans: Plans besides those of the configuration.
        now_ns: UTC ns.
    """
    assumed = stored.assumed()
    spots = stored.spots(plans)
    book = PriceBook(stored.plans, stored.electricity, devices, assumed, lambda: spots)
    day = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC).date()
    offers = []
    for plan in (*stored.plans, *plans):
        # A plan of the past or the future, as if it began today.
        alone = [plan.model_copy(update={"valid_from": day})]
        offers.append((plan, PriceBook(alone, stored.electricity, devices, None, lambda: spots)))
    prices: dict[str, list[DevicePrice]] = {}
    for device in devices:
        terms = book.terms(device.name, now_ns)
        found = (
            [] if terms is None else [_price(terms, _plan_in_force(stored.plans, terms), now_ns)]
        )
        for plan, offer in offers:
            other = offer.terms(device.name, now_ns)
            if other is not None and (terms is None or other.rate.price != terms.rate.price):
                found.append(_price(other, plan, now_ns))
        prices[device.name] = found
    return prices


def _plan_in_force(plans: Sequence[Plan], terms: Terms) -> Plan | None:
    """Return the configured plan of a rate, by the day in its source."""
    found = (plan for plan in plans if terms.rate.source.startswith(f"{plan.source},"))
    return next(found, None)


def _price(terms: Terms, plan: Plan | None, now_ns: int) -> DevicePrice:
    rate = terms.rate
    cash = running = Decimal(0)
    if isinstance(plan, OwnedPlan):
        quote = plan.quote(now_ns)
        # The share of a host's price that one of its devices pays.
        share = rate.per_hour / quote.per_hour if quote.per_hour else Decimal(0)
        cash, running = plan.purchase_price * share, plan.monthly_costs * share
    spot = plan if isinstance(plan, SpotPlan) else None
    return DevicePrice(
        words=rate.plan.replace("_", " ") if plan is None or not plan.name else plan.name,
        rate=rate,
        electricity_per_j=terms.electricity_per_j,
        is_always_paid=rate.plan not in BY_THE_HOUR,
        cash=cash,
        running_per_month=running,
        interruptions_per_month=None if spot is None else spot.interruptions_per_month,
        recovery_s=0.0 if spot is None else spot.recovery_s,
    )


def _load_evidence(
    reader: StoreReader,
    services: Sequence[ServiceConfig],
    probes: Sequence[AnyProbeConfig],
    now_ns: int,
) -> dict[str, LoadEvidence]:
    """Return the newest load curve of a server of each service, with the service's requests.

    Args:
        reader: The store.
        services: The configured services.
        probes: The configured probes.
        now_ns: UTC in ns.
    """
    found = {}
    # A load curve of a part has half of the cost.
    for service in (one for one in services if not one.is_part):
        curves = [
            curve
            for probe in probes_of(probes, service)
            for curve in _curves(reader, probe, 0, now_ns)
        ]
        if curves:
            curve = max(curves, key=lambda each: (each.time_ns, each.device))
            found[service.name] = _evidence(reader, service, curve, now_ns)
    return found


def probes_of(probes: Sequence[AnyProbeConfig], service: ServiceConfig) -> list[ServedProbeConfig]:
    """Return the probes of the servers of a service: those with one of its addresses."""
    addresses = {_address(url) for url in service.url}
    return [
        probe
        for probe in probes
        if isinstance(probe, ServedProbeConfig) and _address(probe.url) in addresses
    ]


def _address(url: str) -> tuple[str, int | None]:
    """Return host and port of an address."""
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)


def _evidence(
    reader: StoreReader, service: ServiceConfig, curve: LoadCurve, now_ns: int
) -> LoadEvidence:
    since_ns = now_ns - WEEK_NS
    rows, models = [], set()
    for row in reader.points("serving", since_ns, now_ns, {"service": service.name}):
        model = row.tags.get("served_model")
        if model is None:
            rows.append(row)
        elif number(row, "requests") or number(row, "tokens_out"):
            models.add(model)
    replicas = len(service.url)
    return LoadEvidence(
        curve,
        replicas,
        production_load(rows, replicas).mix,
        max(1, len(models)),
        _fingerprint(reader, curve, curve.time_ns),
        _fingerprint(reader, curve, now_ns),
        sorted(numbers(rows, "kv_cache_share")),
        sorted(numbers(rows, "requests_waiting")),
    )


def _fingerprint(reader: StoreReader, curve: LoadCurve, until_ns: int) -> str | None:
    """Return the fingerprint of the probe's newest run until an instant; None without one."""
    tags: Mapping[str, str] = {"probe": curve.probe, "device": curve.device}
    newest = max(reader.last("probe", until_ns, tags), key=lambda row: row.time_ns, default=None)
    found = None if newest is None else newest.fields.get("fingerprint")
    return found if isinstance(found, str) else None
