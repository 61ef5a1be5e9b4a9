"""The overview that dashboard, report, terminal and Grafana's home dashboard begin with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.faults import disk_of, present_faults
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.money import MODELLED, money
from costprobe.core.periods import WEEK_NS
from costprobe.core.records import Point, natural
from costprobe.core.schema import ASSUMED
from costprobe.core.units import counted
from costprobe.drift.actions import action_of
from costprobe.drift.findings import CONTENTION
from costprobe.spend.evaluate import BudgetOverview
from costprobe.spend.now import Spending, present_power_w, spending
from costprobe.ui import amounts
from costprobe.ui.text import utc
from costprobe.unit_costs.now import UnitGroup, unit_groups


@dataclass(frozen=True, slots=True)
class MainChange:
    """The largest change that lasts, as the event reported it.

    Attributes:
        kind: Kind of the event: drift or price.
        title: What changed, in one line.
        detail: Causes and what to do.
        cause: Named cause; empty if unknown.
        change_pct: Change in percent; None for a price.
        cost_per_month: What it is worth in a month, in the currency, as its event has it.
        currency: ISO 4217 code.
        since_ns: Start of the change, UTC in ns.
        time_ns: When it was reported, UTC in ns.
        tags: Tags of its series.
        others: Number of other series that changed.
        alike: Number of those on the same device from the same cause.
    """

    kind: str
    title: str
    detail: str
    cause: str
    change_pct: float | None
    cost_per_month: float | None
    currency: str
    since_ns: int
    time_ns: int
    tags: Mapping[str, str]
    others: int = 0
    alike: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """The answers at an instant.

    Attributes:
        time_ns: UTC in ns.
        host: Name of the host; empty before the first status.
        spending: One entry per currency, the largest first.
        power_w: Present power of all devices; None if it is unknown.
        units: Models and services, the most expensive unit first within each basis.
        change: The largest change; None if nothing changed.
        firing: Firing alerts that are not silenced, as stored, the worst first.
        assumed: Currencies in which a device's price is assumed.
    """

    time_ns: int
    host: str
    spending: Sequence[Spending]
    power_w: float | None
    units: Sequence[UnitGroup]
    change: MainChange | None
    firing: Sequence[Mapping[str, Any]]
    assumed: Collection[str]


# Below this level in percent a change has reverted.
REVERTED_PCT: Final = 0.5
# The drifts of other series are parts of these.
_OF_COST: Final = frozenset({"cost", CONTENTION, "serving_time", "serving_energy", "demand", "mix"})
_SERIES: Final = ("device", "probe", "service", "served_model", "metric")


def main_change(reader: StoreReader, now_ns: int) -> MainChange | None:
    """Return the largest drift of the last week that has not reverted, else the newest price change.

    The largest is that with most money a month; without money that with the largest change in percent.

    Raises:
        StoreError: The store cannot be read.
    """
    since_ns = now_ns - WEEK_NS
    drifts = _lasting(reader.points("event", since_ns, now_ns + 1, {"kind": "drift"}))
    of_cost = [change for change in drifts if change.tags.get("metric") in _OF_COST] or drifts
    if of_cost:
        largest = max(of_cost, key=_size)
        own = (largest.tags.get("device"), largest.cause)
        others = {
            _subject(one): (one.tags.get("device"), one.cause) == own and largest.cause != ""
            for one in of_cost
            if _subject(one) != _subject(largest)
        }
        return replace(largest, others=len(others), alike=sum(others.values()))
    prices = list(reader.points("event", since_ns, now_ns + 1, {"kind": "price"}))
    return _change(prices[-1:]) if prices else None


def _lasting(rows: Iterable[Point]) -> list[MainChange]:
    """Return the drifts that have not reverted, each from its rows since the last reversal."""
    series: dict[tuple[str, ...], list[Point]] = {}
    for row in rows:
        key = tuple(row.tags.get(tag, "") for tag in _SERIES)
        level_pct = number(row, "level_pct")
        if level_pct is not None and abs(level_pct) < REVERTED_PCT:
            series.pop(key, None)
        else:
            series.setdefault(key, []).append(row)
    return [_change(own) for own in series.values()]


def _change(rows: list[Point]) -> MainChange:
    first, newest = rows[0], rows[-1]
    level_pct, since_ns = number(newest, "level_pct"), number(first, "since_ns")

    def text(name: str) -> str:
        """Return a text; a further shift without its own cause has that of the first."""
        return next((str(row.fields[name]) for row in reversed(rows) if row.fields.get(name)), "")

    return MainChange(
        kind=newest.tags.get("kind", ""),
        title=text("title"),
        detail=text("detail"),
        cause=text("cause"),
        change_pct=number(newest, "change_pct") if level_pct is None else level_pct,
        cost_per_month=number(newest, "cost_per_month"),
        currency=str(newest.fields.get("currency", "")),
        since_ns=first.time_ns if since_ns is None else int(since_ns),
        time_ns=newest.time_ns,
        tags=newest.tags,
    )


# What a drift of a metric does, and the words for more and less of it.
_METRICS: Final[Mapping[str, tuple[str, str, str]]] = {
    "latency": ("is", "slower", "faster"),
    "throughput": ("is", "faster", "slower"),
    "energy": ("uses", "more energy", "less energy"),
    "serving_energy": ("uses", "more energy", "less energy"),
    "serving_time": ("needs", "more device time", "less device time"),
}
_COSTS: Final = ("costs", "more", "less")
# Causes of which the name alone says too little; "" is an unknown one.
_CAUSES: Final[Mapping[str, str]] = {
    "": "no cause is known",
    "unknown": "no cause is known",
    "cooling": "it overheats",
    "temperature": "it overheats",
    "thermal throttling": "it overheats",
    "power limit": "it is at its power limit",
    "clock": "its clock fell",
    "memory clock": "its memory clock fell",
    "neighbour": "another process uses it",
    "software": "the software changed",
    "annotation": "something was deployed",
    "batch": "the batch changed",
}
_COMMANDS: Final = re.compile(r" \([^)]*`[^)]*\)")


def cause_words(cause: str) -> str:
    """Return a cause as a clause: "it overheats"."""
    return _CAUSES.get(cause, cause)


def todo_sentence(cause: str, device: str) -> str:
    """Return what to do about a cause as a sentence, without the commands that show more."""
    todo = _COMMANDS.sub("", action_of(cause or "unknown", device)).replace("`", "")
    return f"{todo[:1].upper()}{todo[1:]}."


def sentence(change: MainChange) -> str:
    """Return a change as a sentence: what, how much, since when, why, and what to do; times are UTC."""
    since = utc(change.since_ns)
    tags, pct = change.tags, change.change_pct
    if change.kind != "drift" or pct is None:
        title = change.title.rstrip(".")
        return f"{title[:1].upper()}{title[1:]}, since {since}."
    name = "/".join(
        filter(None, (tags.get("service") or tags.get("probe"), tags.get("served_model")))
    )
    subject = " on ".join(filter(None, (name, tags.get("device")))) or "The host"
    if change.alike:
        subject = f"{tags.get('device')} ({change.alike + 1} models)"
    verb, more, less = _METRICS.get(tags.get("metric", ""), _COSTS)
    is_worse = (pct > 0) != (tags.get("metric") == "throughput")
    words = f"{subject} {verb} {amounts.change(pct)} {more if pct > 0 else less} since {since}"
    cause = change.cause.replace("_", " ")
    todo = todo_sentence(cause, tags.get("device", "")) if is_worse else ""
    lines = [f"{words}: {cause_words(cause)}.", todo, _worth(change)]
    if others := change.others - change.alike:
        lines.append(f"{counted(others, 'other')} changed, too.")
    return " ".join(filter(None, lines))


def _worth(change: MainChange) -> str:
    """Return what a change is worth; a probe has no bill: its change is a part of its device's capacity."""
    if change.cost_per_month is None:
        return ""
    amount = money(abs(change.cost_per_month), change.currency, MODELLED)
    if change.tags.get("probe"):
        return f"Worth up to {amount} a month, if the device is fully used."
    return f"About {amount} {'less' if change.cost_per_month < 0 else 'more'} a month."


def _size(change: MainChange) -> tuple[float, float]:
    return abs(change.cost_per_month or 0.0), abs(change.change_pct or 0.0)


def _subject(change: MainChange) -> tuple[str, ...]:
    return tuple(change.tags.get(tag, "") for tag in _SERIES[:-1])


_SEVERITIES: Final = ("critical", "warning", "info")
States = Mapping[str, tuple[Any, int]]


def overview(
    reader: StoreReader, config: Config, now_ns: int, months: Sequence[BudgetOverview] = ()
) -> Overview:
    """Return the overview at an instant.

    Args:
        reader: The store.
        config: The configuration: intervals of rows.
        now_ns: UTC in ns.
        months: The spend of this month of each currency, of the budgets that `host_budgets` returns; it
            takes longer than the rest, and a server keeps it for a minute.

    Raises:
        StoreError: The store cannot be read.
    """
    states = reader.states()
    status, _ = states.get("status", ({}, 0))
    return Overview(
        time_ns=now_ns,
        host=str((status or {}).get("host") or ""),
        spending=spending(reader, config.budget, config.telemetry.aggregate_s, now_ns, months),
        power_w=present_power_w(reader, now_ns),
        units=unit_groups(reader, now_ns),
        change=main_change(reader, now_ns),
        firing=firing_alerts(states),
        assumed=assumed_currencies(status),
    )


def assumed_currencies(status: Mapping[str, Any] | None) -> Collection[str]:
    """Return the currencies in which the price of a device is assumed, by the daemon's status."""
    prices = (status or {}).get("prices", ())
    return {price["currency"] for price in prices if price["plan"] == ASSUMED}


def firing_alerts(states: States) -> Sequence[Mapping[str, Any]]:
    """Return the firing alerts that are not silenced, the worst and newest first."""
    document, _ = states.get("alerts", ({}, 0))
    silenced = set(document.get("silenced", ()))
    firing = [
        alert
        for alert in document.get("alerts", ())
        if alert.get("state") == "firing" and alert.get("id") not in silenced
    ]
    firing.sort(key=lambda alert: (_rank(alert), -alert.get("since_ns", 0)))
    return firing


def _rank(alert: Mapping[str, Any]) -> int:
    severity = alert.get("severity")
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)


def newest_rows(rows: Iterable[Point], identity: Sequence[str], oldest_ns: int) -> list[Point]:
    """Return the newest row of each identity, by name; earlier plans and batches are omitted.

    Args:
        rows: Rows of one measurement.
        identity: Tags that identify what a row is of.
        oldest_ns: UTC in ns; older rows are omitted.
    """
    newest: dict[tuple[str, ...], Point] = {}
    for row in rows:
        key = tuple(row.tags.get(tag, "") for tag in identity)
        if row.time_ns >= oldest_ns and (key not in newest or newest[key].time_ns < row.time_ns):
            newest[key] = row
    return [newest[key] for key in sorted(newest, key=lambda key: natural(*key))]


def host_faults(status: Mapping[str, Any], reader: StoreReader) -> list[dict[str, str]]:
    """Return the faults of a running daemon, and its failing jobs, as JSON.

    Args:
        status: Its status document, perhaps of another version.
        reader: The store.
    """
    try:
        disk = disk_of(reader.path)
    except OSError:
        disk = None
    try:
        present = present_faults(status, disk)
    except (AttributeError, KeyError, TypeError, ValueError):
        text = "the daemon has another version than this program; restart both"
        return [fault_document("another_version", text)]
    faults = [fault_document(f.name, f.words, f.subject, f.severity) for f in present]
    errors = ((name, job.get("last_error")) for name, job in status.get("jobs", {}).items())
    return faults + [
        fault_document("job_failing", f"{name}: {error}", name) for name, error in errors if error
    ]


def fault_document(
    name: str, text: str, subject: str = "", severity: str = "warning"
) -> dict[str, str]:
    """Return a fault as JSON."""
    return {"name": name, "subject": subject, "text": text, "severity": severity}
