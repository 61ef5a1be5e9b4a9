"""What the page of a host shows of now: figures, the change, models, alerts, devices and the parts of each cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.money import MODELLED, money, price_scale
from costprobe.core.money import scale_words as long_words
from costprobe.core.periods import WEEK_NS
from costprobe.core.records import NS_PER_S, FieldValue, Point, devices_text, is_slice_kind, natural
from costprobe.core.schema import ASSUMED, OWN_TAGS
from costprobe.core.slo import slo_words
from costprobe.core.units import counted, percent
from costprobe.spend.budget import period_words
from costprobe.spend.evaluate import BudgetOverview
from costprobe.spend.now import DayAllocation, Spending
from costprobe.ui.amounts import UNKNOWN, change, rounded, si
from costprobe.ui.dashboard.cells import (
    Content,
    moved,
    part,
    planned,
    price,
    spark,
    table,
    tile,
)
from costprobe.ui.dashboard.fields import trend_choices
from costprobe.ui.host_overview import (
    Overview,
    fault_document,
    host_faults,
    newest_rows,
    sentence,
)
from costprobe.ui.incidents import hidden_changes, is_running, noisy_services
from costprobe.ui.text import UNMEASURED, ago, dated, utc
from costprobe.unit_costs.now import OUTLIER_SHARE, UnitCost, UnitGroup

NS_PER_MS: Final = 1_000_000
# Series without a row for a week are omitted.
FORGOTTEN_S: Final = 7 * 86_400.0
ENTRIES_MAX: Final = 200
SYMPTOMS_MAX: Final = 20
# Without a new value for longer, a cost or a reading is not of now.
STALE_COST_NS: Final = 7200 * NS_PER_S
STALE_READING_S: Final = 120.0
# A smaller spread is that of the measurement.
LEAST_SPREAD: Final = 0.005
GIB: Final = 2**30
# Tags that identify a cost, a probe and a device; other tags are attributes.
_OF_COST = ("host", "device", "probe", "service", "served_model", "basis")
_OF_PROBE = ("host", "device", "probe", "service")
_OF_DEVICE = ("host", "device")


class HostRows(NamedTuple):
    """The newest row of each cost, probe and device, with the status of the daemon and its alerts."""

    time_ns: int
    costs: Sequence[Point]
    probes: Sequence[Point]
    devices: Sequence[Point]
    status: Mapping[str, Any] | None
    status_ns: int
    alerts: Mapping[str, Any]
    faults: Sequence[Mapping[str, str]]


def host_rows(reader: StoreReader, now_ns: int) -> HostRows:
    """Read the newest rows.

    Raises:
        StoreError: The store cannot be read.
    """
    states = reader.states()
    status, status_ns = states.get("status", (None, 0))
    faults = [fault_document("not_running", "the daemon is not running; see `costprobe status`")]
    with decoding(reader.path):
        if status is not None and _runs(status, status_ns, now_ns):
            faults = host_faults(status, reader)[:ENTRIES_MAX]
    oldest_ns = now_ns - int(FORGOTTEN_S * NS_PER_S)
    costs, probes, devices = (
        newest_rows(reader.last(name, now_ns), tags, oldest_ns)[:ENTRIES_MAX]
        for name, tags in (("cost", _OF_COST), ("probe", _OF_PROBE), ("device", _OF_DEVICE))
    )
    alerts, _ = states.get("alerts", ({}, 0))
    return HostRows(now_ns, costs, probes, devices, status, status_ns, alerts, faults)


def now_document(
    rows: HostRows, overview: Overview, day: Sequence[DayAllocation] | None, label: str = ""
) -> dict[str, Any]:
    """Return the answer of `/api/now`.

    Args:
        rows: The newest rows.
        overview: Spend, unit costs and the change.
        day: What the last day was spent on, by currency; None before it was computed.
        label: Only models and costs with it, such as "team=search"; empty for all.
    """
    name, _, value = label.partition("=")

    def is_chosen(tags: Mapping[str, str]) -> bool:
        return not label or tags.get(name) == value

    groups = [one for one in overview.units if any(is_chosen(unit.tags) for unit in one.members)]
    costs = [row for row in rows.costs if is_chosen(row.tags)]
    scales = {_identity(u.tags): u.scale for g in groups for u in g.members if u.unit != "token"}
    ages = [_age_s(row, rows.time_ns) for row in rows.devices]
    return {
        "time_ms": rows.time_ns // NS_PER_MS,
        "daemon": _daemon(rows.status, rows.status_ns, rows.time_ns),
        "reading_age_s": min(ages, default=None),
        "tiles": list(_tiles(rows, overview, day)),
        "change": _change(overview),
        "units": unit_table(groups, rows.time_ns, _next_step(rows, label)),
        "firing": list(_firing(rows, overview)),
        "notes": [
            *hidden_changes(rows.alerts.get("detectable", ())),
            *noisy_services(rows.alerts.get("noisy_services", ())),
        ][:ENTRIES_MAX],
        "devices": _devices(rows, day or ()),
        "map": device_map(rows, overview) if len(rows.devices) >= MAP_MIN else None,
        "parts": _parts(costs, rows.probes, scales),
        "choices": _choices(rows),
    }


def _choices(rows: HostRows) -> dict[str, Any]:
    """Return what the trend can show: fields with a value, devices, models and labels."""
    known = {
        f"{row.measurement}.{name}" for row in (*rows.probes, *rows.devices) for name in row.fields
    }
    for row in rows.costs:
        own = {f"cost.{name}" for name in row.fields}
        known |= own | {f"{name}&basis={row.tags.get('basis', '')}" for name in own}
    every = [*rows.costs, *rows.probes, *rows.devices]

    def values(tag: str, of: Iterable[Point]) -> list[str]:
        return sorted({row.tags[tag] for row in of if row.tags.get(tag)}, key=natural)

    named = [*rows.costs, *rows.probes]
    return {
        **trend_choices(known),
        "devices": values("device", every),
        "models": [f"{tag}={name}" for tag in ("probe", "service") for name in values(tag, every)],
        "labels": [
            f"{name}={value}"
            for name in sorted({tag for row in named for tag in row.tags} - OWN_TAGS)
            for value in values(name, named)[:ENTRIES_MAX]
        ],
    }


def _daemon(status: Mapping[str, Any] | None, written_ns: int, now_ns: int) -> dict[str, Any]:
    if status is None:
        return {"state": "not started yet", "running": False}
    return {
        "state": status.get("state"),
        "running": _runs(status, written_ns, now_ns),
        "host": status.get("host"),
        "version": status.get("version"),
        "started_ms": status.get("started_ns", 0) // NS_PER_MS,
        "age_s": max(0.0, (now_ns - written_ns) / NS_PER_S),
    }


def _runs(status: Mapping[str, Any], written_ns: int, now_ns: int) -> bool:
    age_s = max(0.0, (now_ns - written_ns) / NS_PER_S)
    try:
        return is_running({**status, "age_s": age_s})
    except (KeyError, TypeError, ValueError):
        return False  # written by another version


def _age_s(row: Point, now_ns: int) -> float:
    return max(0.0, (now_ns - row.time_ns) / NS_PER_S)


# ---- the first line


def _tiles(
    rows: HostRows, overview: Overview, day: Sequence[DayAllocation] | None
) -> Iterator[Mapping[str, Any]]:
    for one in overview.spending:
        assumed = one.currency in overview.assumed
        spent = next((each for each in day or () if each.currency == one.currency), None)
        if one.per_hour is None:
            yield tile("Spend now", UNKNOWN, part("no reading in the last hour", "muted"))
        else:
            yield tile(
                "Spend now",
                [price(one.per_hour, one.currency), part(" an hour", "small")],
                part(
                    "assumed price: set [[price]]" if assumed else "hardware and electricity",
                    "warn" if assumed else "muted",
                ),
            )
        note = ", price assumed" if assumed else ""
        yield month_tile(one.month, is_planned=one.is_planned, note=note)
        yield _unused(one, spent)
    if not overview.spending:
        yield tile("Spend now", UNKNOWN, part("no price is known", "muted"))
    # The power of a part of a board is in the board's.
    boards = [row for row in rows.devices if not is_slice_kind(row.tags.get("kind", ""))]
    drawn = sum("power_w" in row.fields for row in boards)
    many = counted(len(boards), "device")
    yield tile(
        "Power",
        UNKNOWN
        if overview.power_w is None
        else part(si(overview.power_w, "W"), value=overview.power_w),
        part(many if drawn == len(boards) else f"{drawn} of {many}", "muted"),
    )


def _unused(one: Spending, day: DayAllocation | None) -> Mapping[str, Any]:
    """Return what is paid now while devices do nothing, and what of the last day had no work."""
    shares = (
        []
        if day is None or day.total <= 0
        else [(each.kind, each.cost / day.total) for each in day.parts if each.kind != "model"]
    )
    waste: dict[str, float] = {
        kind: share for kind, share in shares if kind in ("idle", "remainder")
    }
    names = {"idle": "while services wait", "remainder": "without a service"}
    words = [
        part(f"{percent(waste.get(kind, 0.0))} {name} ", f"key {kind}")
        for kind, name in names.items()
    ]
    has_service = any(kind == "service" for kind, _ in shares)
    last_day = [part("last 24 h", href="#split-title"), ": ", *words] if has_service else None
    if one.idle_share is None or one.per_hour is None:
        return tile("Unused now", UNKNOWN, part("utilization unknown", "muted"), last_day)
    return tile(
        "Unused now",
        [price(one.per_hour * one.idle_share, one.currency), part(" an hour", "small")],
        part(f"{percent(one.idle_share)} of the spend", "muted"),
        last_day,
        bar=[[kind, share] for kind, share in shares] if has_service else None,
    )


def month_tile(
    month: BudgetOverview | None, *, is_planned: bool, note: str = ""
) -> Mapping[str, Any]:
    """Return the spend of a month so far against the planned amount, with its forecast."""
    if month is None:
        return tile("This month", "…", part("reading the hours so far", "muted"))
    status = month.status
    spent, amount = status.spent, status.amount if is_planned else None
    return spend_tile(
        period_words(status), status.budget.currency, (spent, amount, status.expected), note
    )


def spend_tile(
    name: str, currency: str, amounts: tuple[float, float | None, float | None], note: str = ""
) -> Mapping[str, Any]:
    """Return spend so far against the planned amount, with the forecast; None where unknown."""
    spent, amount, forecast = amounts
    words = "no forecast yet" if forecast is None else f"forecast {money(forecast, currency)}"
    so_far = price(spent, currency)
    if amount is None:
        return tile(
            name, [so_far, part(" so far", "small")], part(f"{words}, no budget{note}", "muted")
        )
    over = None if forecast is None else forecast / amount - 1
    kind = "muted"
    if over is not None and over > 0:
        kind, words = "warn", f"{words}, {change(rounded(over * 100, MODELLED))} over"
    if spent > amount:
        kind, words = "bad", f"exceeded; {words}"
    most = max(amount, spent, forecast or 0.0) * 1.02
    ahead = [] if forecast is None else [["band", max(0.0, forecast - spent) / most]]
    return tile(
        name,
        so_far,
        part(["of ", planned(amount, currency)], "muted"),
        part(words + note, kind),
        bar=[
            ["over" if spent > amount else "spent", spent / most],
            *ahead,
            ["planned", amount / most],
        ],
    )


def _change(overview: Overview) -> dict[str, Any]:
    found = overview.change
    if found is None:
        return {"kind": "calm", "text": "No lasting change in the last 7 days.", "more": []}
    is_less = found.change_pct is None or (found.change_pct < 0) != (
        found.tags.get("metric") == "throughput"
    )
    return {
        "kind": "better" if is_less else "worse",
        "text": sentence(found),
        "more": [dated(text, found.time_ns) for text in (found.title, found.detail) if text],
    }


def _next_step(rows: HostRows, label: str) -> str:
    """Return what to do where no model has a cost."""
    if label:
        return "No cost has this label."
    if not rows.devices and not rows.probes:
        return "Nothing is measured yet. The daemon reads the devices within a minute; `costprobe doctor` says what is missing."
    if not any("price_rate_per_h" in row.fields for row in rows.devices):
        return "No device has a price, so nothing has a cost. Add one: `costprobe price list` shows prices of this GPU, and [[price]] sets it."
    return "No model has a cost yet. Measure one: `costprobe probe encoder`, or name a server in [[service]]."


# ---- models and services


_HEADS: Final = (
    "Model or service", "#Cost now", "#24 h", "#7 d", "Trend~", "#Latency~", "#Energy~", "#Limit~", "On~",
)  # fmt: skip


def unit_table(groups: Sequence[UnitGroup], now_ns: int, none: str) -> dict[str, Any]:
    """Return a row for each model and service, beneath it those of devices, shown at once if they deviate."""
    found, below = [], []
    for key, group in enumerate(groups):
        is_one = len(group.members) == 1
        found.append(_unit_row(group.typical, _name(group), _place(group), now_ns))
        below.append({"of": None, "key": None if is_one else key})
        for unit in () if is_one else group.members:
            device = unit.tags.get("device", "")
            is_outlier = device in group.outliers
            share = unit.cost / group.typical.cost - 1 if group.typical.cost else 0.0
            words = f" {change(share * 100)} {'above' if share > 0 else 'below'} the others"
            note = words if abs(share) > OUTLIER_SHARE else " changed, the others did not"
            name = [device, part(note, "warn small")] if is_outlier else device
            found.append(_unit_row(unit, name, "", now_ns))
            below.append({"of": key, "is_outlier": is_outlier})
    caption = "Cost of the last hour, against the same hour a day and a week before"
    return {**table(caption, _HEADS, found, none=none), "tree": below}


def _name(group: UnitGroup) -> Content:
    tags = group.typical.tags
    basis = "probe" if tags.get("basis") != "serving" else "service"
    if "served_model" in tags and basis == "service":
        basis = tags.get("service", "")
    ways = [basis, *([f"batch {tags['batch']}"] if "batch" in tags else [])]
    return [
        part(tags.get("served_model") or group.typical.name, "name"),
        " ",
        part(", ".join(ways), "basis"),
    ]


def _place(group: UnitGroup) -> Content:
    names = [name for unit in group.members for name in unit.devices]
    spread = (
        f", spread {percent(group.spread)}"
        if group.spread > LEAST_SPREAD and not group.outliers
        else ""
    )
    return devices_text(names) + spread


def _unit_row(unit: UnitCost, name: Content, place: Content, now_ns: int) -> list[Content]:
    is_old = now_ns - unit.time_ns > STALE_COST_NS
    marks = [
        part(f" {ago((now_ns - unit.time_ns) / NS_PER_S)} ago", "bad small") if is_old else "",
        part(" contended", "warn small") if unit.is_contended else "",
        *(
            part(f" {slo_words(asdict(one))}", "warn small" if one.is_missed else "small")
            for one in unit.slo
        ),
    ]
    per = f" / {scale_words(unit.scale, unit.unit)}"
    assumed = " assumed" if unit.tags.get("plan") == ASSUMED else ""
    return [
        [name, *filter(None, marks)],
        [
            part(
                money(unit.cost * unit.scale, unit.tags.get("currency", "")),
                "price",
                value=unit.cost,
            ),
            part(per + assumed, "small"),
        ],
        moved(unit.change_24h_pct),
        moved(unit.change_7d_pct),
        spark(unit.trend, (now_ns - WEEK_NS, now_ns)),
        si(None if unit.latency_ms is None else unit.latency_ms / 1000, "s"),
        _energy(unit),
        UNKNOWN if unit.limit_share is None else percent(unit.limit_share),
        place,
    ]


def _energy(unit: UnitCost) -> str:
    """Return the energy of an inference or a request, or of a token out."""
    if unit.unit != "token" or unit.energy_j is None:
        return si(unit.energy_j, "J")
    return f"{si(unit.energy_j / 1e6, 'J')} / token"


def scale_words(scale: int, unit: str) -> str:
    """Return what a unit price is divided by, briefly: "M inferences", "M tokens out"."""
    words = long_words(scale, unit) + (" out" if unit == "token" else "")
    return words.replace("million", "M")


# ---- what fires


def _firing(rows: HostRows, overview: Overview) -> Iterator[Mapping[str, Any]]:
    """Yield faults of the daemon, alerts and faults, the worst first; of the change above only its name."""
    dead = [fault for fault in rows.faults if fault["name"] == "not_running"]
    yield from map(_fault, dead)
    silenced = rows.alerts.get("silenced", ())
    alerts = list(rows.alerts.get("alerts", ()))[:ENTRIES_MAX]
    alerts.sort(
        key=lambda one: (
            one.get("id") in silenced or one.get("state") != "firing",
            -one.get("since_ns", 0),
        )
    )
    for alert in alerts:
        yield _alert(alert, is_silenced=alert.get("id") in silenced, overview=overview)
    yield from (_fault(fault) for fault in rows.faults if fault not in dead)


def _fault(fault: Mapping[str, str]) -> Mapping[str, Any]:
    kind = "bad" if fault["name"] == "not_running" or fault["severity"] == "critical" else "warn"
    return {
        "kind": kind,
        "title": fault["name"].replace("_", " "),
        "text": fault["text"],
        "more": [],
    }


def _alert(alert: Mapping[str, Any], *, is_silenced: bool, overview: Overview) -> Mapping[str, Any]:
    since_ns = alert.get("since_ns", 0)
    labels: Mapping[str, str] = alert.get("labels", {})
    symptoms = [symptom.get("text", "") for symptom in alert.get("symptoms", ())]
    left = len(symptoms) - SYMPTOMS_MAX
    shown = [*symptoms[:SYMPTOMS_MAX], *([f"and {left} more"] if left > 0 else [])]
    tags = {} if overview.change is None else overview.change.tags
    is_above = (
        alert.get("name") == "drift"
        and {
            name: text for name, text in labels.items() if name in ("device", "probe", "service")
        }.items()
        <= dict(tags).items()
    )
    summary = alert.get("summary") or ""
    cause = alert.get("cause") or ""
    facts = [
        summary if is_above else "",
        alert.get("detail") or (f"cause: {cause}" if cause else ""),
        *(shown if len(symptoms) > 1 else []),
        ", ".join(
            filter(
                None,
                (
                    "" if alert.get("state") == "firing" else str(alert.get("state")),
                    "silenced" if is_silenced else "",
                    "flapping" if alert.get("is_flapping") else "",
                    " ".join(f"{name}={value}" for name, value in labels.items()),
                ),
            )
        ),
    ]
    kind = {"critical": "bad", "warning": "warn"}.get(alert.get("severity", ""), "good")
    return {
        "kind": "" if is_silenced else kind,
        "title": f"{alert.get('name')}, {alert.get('severity')}, since {utc(since_ns)}",
        "text": "The change above." if is_above else dated(summary, since_ns),
        "more": [dated(fact, since_ns) for fact in facts if fact],
    }


# ---- devices


def _devices(rows: HostRows, day: Sequence[DayAllocation]) -> dict[str, Any]:
    prices = (rows.status or {}).get("prices", ())
    assumed = {one.get("device") for one in prices if one.get("plan") == ASSUMED}
    costs = {
        device: (cost, one.currency, cost / one.total if one.total > 0 else None)
        for one in day
        for device, cost in one.by_device.items()
    }
    heads = (
        "Device", "Model", "#Utilization", "#Power", "#Limit", "#Temperature", "#SM clock", "#Memory clock", "Throttled",
        "#Memory", "#Memory errors", "#Price", "#Cost, 24 h", "#Share", "#Last seen",
    )  # fmt: skip

    def row(point: Point) -> list[Content]:
        fields, tags = point.fields, point.tags
        device, currency = tags.get("device", ""), tags.get("currency", "")

        def field(name: str, unit: str) -> Content:
            value = number(point, name)
            return UNKNOWN if value is None else part(f"{value:,.0f} {unit}", value=value)

        slowed = [
            word for word in ("thermal", "power") if (number(point, f"throttle_{word}_s") or 0) > 0
        ]
        used, whole = number(point, "mem_used_bytes"), number(point, "mem_total_bytes")
        cost, of_currency, share = costs.get(device, (None, "", None))
        mark = " assumed" if device in assumed else ""
        age_s = _age_s(point, rows.time_ns)
        return [
            device,
            tags.get("model", UNKNOWN),
            field("util_pct", "%"),
            field("power_w", "W"),
            field("power_limit_w", "W"),
            field("temp_c", "°C"),
            field("sm_clock_mhz", "MHz"),
            field("mem_clock_mhz", "MHz"),
            part(", ".join(slowed), "warn")
            if slowed
            else "no"
            if "throttle_thermal_s" in fields
            else UNKNOWN,
            part(f"{used / GIB:,.0f} of {whole / GIB:,.0f} GiB", value=used / whole)
            if whole and used is not None
            else UNKNOWN,
            part(f"{fields['ecc_uncorrected']:,}", "bad")
            if fields.get("ecc_uncorrected")
            else UNKNOWN,
            price(number(point, "price_rate_per_h"), currency, per=f" / h{mark}"),
            price(cost, of_currency),
            UNKNOWN if share is None else part(percent(share), value=share),
            part(f"{ago(age_s)} ago", "bad", value=age_s) if age_s > STALE_READING_S else UNKNOWN,
        ]

    none = "No device was read in the last 7 days."
    return table(
        "The newest reading of each; choose a column to sort by it.",
        heads,
        map(row, rows.devices),
        none=none,
    )


# With as many devices a map stands before their table.
MAP_MIN: Final = 16
# A device whose kernels ran for a smaller share of its reading does nothing, in percent.
_BUSY_PCT: Final = 1.0
# The states of a device in the order in which they are listed, by their colour.
_STATES: Final = {
    "over": "fault",
    "service": "busy",
    "idle": "unused",
    "remainder": "no service",
    "probing": "utilization unknown",
}


def device_map(rows: HostRows, overview: Overview) -> dict[str, Any]:
    """Return what each device does: its name, its colour, and that in words; and the number of each colour."""
    served = {
        name
        for group in overview.units
        for unit in group.members
        if unit.tags.get("basis") == "serving"
        for name in unit.devices
    }
    firing = {one.get("labels", {}).get("device"): one.get("name") for one in overview.firing}

    def state(row: Point) -> tuple[str, str]:
        device, util = row.tags.get("device", ""), number(row, "util_pct")
        age_s = _age_s(row, rows.time_ns)
        if age_s > STALE_READING_S:
            return "over", f"not read for {ago(age_s)}"
        if device in firing:
            return "over", f"alert {firing[device]}"
        if util is None:
            return "probing", _STATES["probing"]
        kind = "service" if util >= _BUSY_PCT else "idle" if device in served else "remainder"
        return kind, f"{_STATES[kind]}, utilization {util:.0f} %"

    found = [(row.tags.get("device", ""), *state(row)) for row in rows.devices]
    counts = Counter(kind for _, kind, _ in found)
    return {
        "name": counted(len(found), "device"),
        "cells": found,
        "keys": [
            [kind, f"{counts[kind]} {name}"] for kind, name in _STATES.items() if counts[kind]
        ],
    }


# ---- the parts of each cost


_SPLITS: Final = {
    "measured": "device time",
    "calibrated": "calibration",
    "weights": "token weights",
}


def _identity(tags: Mapping[str, str]) -> tuple[str, ...]:
    names = ("basis", "device", "probe", "service", "served_model", "currency")
    return tuple(tags.get(name, "") for name in names)


def _parts(
    costs: Iterable[Point], probes: Iterable[Point], scales: Mapping[tuple[str, ...], int]
) -> dict[str, Any]:
    """Return hardware, electricity, idle time, tokens and energy of each cost."""
    runs = {(row.tags.get("device"), row.tags.get("probe")): row for row in probes}
    heads = (
        "Series", "Per", "#Cost", "#Hardware", "#Electricity", "#Services wait", "#1 h", "#24 h", "#7 d",
        "#M tokens in", "#M fresh in", "#M cached in", "#M tokens out", "#In cached", "#Cache saved",
        "Tokens split by", "#Energy each", "Price plan",
    )  # fmt: skip

    def row(point: Point) -> list[Content]:
        tags, fields, currency = point.tags, point.fields, point.tags.get("currency", "")
        is_serving = tags.get("basis") == "serving"
        run = runs.get((tags.get("device"), tags.get("probe")))
        scale = scales.get(_identity(tags)) or price_scale(
            number(point, "cost_per_inference") or 0.0
        )

        def each(name: str) -> Content:
            value = number(point, name)
            return price(None if value is None else value * scale, currency)

        name = "/".join(
            filter(None, (tags.get("probe") or tags.get("service"), tags.get("served_model")))
        )
        energy = (
            number(point, "energy_per_request_j")
            if is_serving
            else None
            if run is None
            else number(run, "energy_per_inference_j")
        )
        source = fields if is_serving or run is None else run.fields
        share, idle = number(point, "cached_share"), number(point, "idle_share")
        return [
            " on ".join(filter(None, (name, tags.get("device")))),
            scale_words(scale, "inference"),
            each("cost_per_inference"),
            each("cost_hardware"),
            each("cost_energy") if "cost_energy" in fields else "in the price",
            UNKNOWN if idle is None else percent(idle),
            *(each(f"rolling_{window}") for window in ("1h", "24h", "7d")),
            *_tokens(point, currency),
            percent(share) if share else UNKNOWN,
            price(number(point, "cost_cache_saved"), currency),
            _SPLITS.get(str(fields.get("token_split", "")), UNKNOWN),
            UNKNOWN if energy is None else f"{si(energy, 'J')}{_method(source)}",
            tags.get("plan", UNKNOWN).replace("_", " "),
        ]

    caption = "The newest cost; 1 h, 24 h and 7 d: median of probes, mean of services."
    return table(caption, heads, map(row, costs), none="No cost in the last 7 days.")


def _tokens(point: Point, currency: str) -> Iterator[str]:
    """Yield cost and energy of a million tokens of each kind, where they are known."""
    for way in ("in", "fresh", "cached", "out"):
        amount = number(point, f"cost_per_million_tokens_{way}")
        energy = number(point, f"energy_per_million_tokens_{way}_j")
        if way == "fresh" and not point.fields.get("cached_tokens"):
            amount = energy = None
        cost = "" if amount is None else money(amount, currency)
        cost += UNMEASURED if way == "cached" and amount == 0 else ""
        yield ", ".join(filter(None, (cost, "" if energy is None else si(energy, "J")))) or UNKNOWN


def _method(fields: Mapping[str, FieldValue]) -> str:
    error = fields.get("energy_rel_err")
    words = str(fields.get("energy_method", "")).replace("_", " ")
    within = f"±{percent(error)}" if isinstance(error, float) else ""
    text = " ".join(filter(None, (words, within)))
    return f" ({text})" if text else ""
