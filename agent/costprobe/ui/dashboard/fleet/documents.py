"""What the fleet's page places: figures, the change, tables, the map and one GPU, formatted here and nowhere else."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from costprobe.core.money import MODELLED, money
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S, natural
from costprobe.core.slo import slo_words
from costprobe.core.units import HOUR_S, counted, percent
from costprobe.drift.actions import action_of
from costprobe.fleet.groups import FleetGroup
from costprobe.fleet.hosts import HostState
from costprobe.fleet.outliers import GpuMap, MappedGpu
from costprobe.fleet.peers import FALSE_SHARE, LEAST_EFFECT, Excess, FleetOutliers, Outlier
from costprobe.fleet.spend import CurrencyCost, FleetForecast, FleetSpend, SpendByKey
from costprobe.fleet.unit_costs import FleetUnitCost, UnitChange
from costprobe.ui.amounts import UNKNOWN, change, si
from costprobe.ui.dashboard.cells import Content, moved, part, price, table, tile
from costprobe.ui.dashboard.now import LEAST_SPREAD, scale_words, spend_tile
from costprobe.ui.host_overview import todo_sentence
from costprobe.ui.text import ago

Link = Callable[[str, str], str | None]
# Silent hosts that are named in the first line.
NAMED_MAX: Final = 3
# With less of the last hour a figure may be too small.
WELL_COVERED: Final = 0.9
CARBON_KNOWN: Final = 0.995
# Of a group so many reasons are shown why it has no price, or one of fewer hours.
PROBLEMS_MAX: Final = 2


class NowSpend(NamedTuple):
    """The spend of the last hour.

    Attributes:
        total: Its cost, energy and coverage.
        assumed: Currencies in which a price is assumed.
        hours: Length of the period.
    """

    total: FleetSpend
    assumed: Collection[str]
    hours: float


class MonthForecast(NamedTuple):
    """The spend of a month.

    Attributes:
        period: The month.
        timezone: IANA name of its time zone.
        currencies: Spend and forecast by currency.
        planned: Planned amounts by currency; None for the only currency of the fleet.
    """

    period: TimeSpan
    timezone: str
    currencies: Sequence[FleetForecast]
    planned: Mapping[str | None, float]


# ---- the first line


def tiles(
    now: NowSpend | None,
    month: MonthForecast | None,
    hosts: tuple[Sequence[HostState], int] | None,
    waiting: str,
) -> list[Mapping[str, Any]]:
    """Return the tiles: always the same six, then those of further currencies.

    Args:
        now: The spend of the last hour; None before the first answer.
        month: That of the month; None before the first answer.
        hosts: The hosts, and the end of their period in UTC ns; None before the first answer.
        waiting: What is said instead of a figure that is asked for.
    """

    def pending(name: str) -> Mapping[str, Any]:
        return tile(name, "…", part(waiting, "muted"))

    rest: list[Mapping[str, Any]] = []
    if now is None:
        first = [pending(name) for name in ("Spend now", "This month", "Unused now", "Power")]
    elif not now.total.costs:
        none = part("no cost in the last hour", "muted" if hosts is None or not hosts[0] else "bad")
        names = ("Spend now", "This month", "Unused now")
        first = [*(tile(name, UNKNOWN, none) for name in names), _power(now)]
    else:
        own, *further = (_spend(one, now, month) for one in now.total.costs)
        first, rest = [*own, _power(now)], [one for each in further for one in each]
    coverage = None if now is None else now.total.coverage
    is_low = coverage is not None and coverage < WELL_COVERED
    return [
        *first,
        pending("Hosts") if hosts is None else _hosts(*hosts),
        pending("Coverage")
        if now is None
        else tile(
            "Coverage",
            UNKNOWN if coverage is None else part(percent(coverage), value=coverage),
            part("of the last hour has rows", "warn" if is_low else "muted"),
        ),
        *rest,
    ]


def _spend(
    one: CurrencyCost, now: NowSpend, month: MonthForecast | None
) -> list[Mapping[str, Any]]:
    """Return the tiles of a currency: an hour, the month, what of it is unused."""
    is_assumed = one.currency in now.assumed
    words = "assumed price: set [[price]]" if is_assumed else "hardware and electricity"
    per_hour, idle = one.cost / now.hours, one.idle_share
    unused = (
        tile("Unused now", UNKNOWN, part("utilization unknown", "muted"))
        if idle is None
        else tile(
            "Unused now",
            [price(per_hour * idle, one.currency), part(" an hour", "small")],
            part(f"{percent(idle)} of the spend", "muted"),
            bar=[["service", 1 - idle], ["idle", idle]],
        )
    )
    return [
        tile(
            "Spend now",
            [price(per_hour, one.currency), part(" an hour", "small")],
            part(words, "warn" if is_assumed else "muted"),
        ),
        _month(month, one.currency, ", price assumed" if is_assumed else ""),
        unused,
    ]


def _month(month: MonthForecast | None, currency: str, note: str) -> Mapping[str, Any]:
    if month is None:
        return tile("This month", "…", part("reading the hours so far", "muted"))
    name = datetime.fromtimestamp(month.period.start_ns / NS_PER_S, ZoneInfo(month.timezone))
    found = next((one for one in month.currencies if one.currency == currency), None)
    if found is None:
        return tile(f"{name:%B %Y}", UNKNOWN, part("no spend in this currency", "muted"))
    only = month.planned.get(None) if len(month.currencies) == 1 else None
    amount = month.planned.get(currency) if only is None else only
    return spend_tile(f"{name:%B %Y}", currency, (found.spent, amount, found.expected), note)


def _power(now: NowSpend) -> Mapping[str, Any]:
    total = now.total
    if total.energy_j is None:
        return tile("Power", UNKNOWN, part("unknown", "muted"))
    watts = total.energy_j / (now.hours * HOUR_S)
    notes = [part("mean of the last hour", "muted")]
    if total.carbon_g is not None:
        share = total.carbon_share
        known = f", known of {percent(share)}" if share is not None and share < CARBON_KNOWN else ""
        emitted = si(total.carbon_g / now.hours, "g")
        notes.append(part(f"{emitted} CO2e an hour{known}", "muted"))
    return tile("Power", part(si(watts, "W"), value=watts), *notes)


def _hosts(states: Sequence[HostState], end_ns: int) -> Mapping[str, Any]:
    silent = sorted((one for one in states if one.is_silent), key=lambda one: -one.newest_ns)
    names = ", ".join(
        f"{one.host} for {ago((end_ns - one.newest_ns) / NS_PER_S)}" for one in silent[:NAMED_MAX]
    )
    left = f", and {len(silent) - NAMED_MAX:,} more" if len(silent) > NAMED_MAX else ""
    devices, firing, faults = (
        sum(getattr(one, name) for one in states) for name in ("devices", "firing", "faults")
    )
    words = [
        counted(devices, "device"),
        f"{firing:,} firing" if firing else "",
        counted(faults, "fault") if faults else "",
    ]
    return tile(
        "Hosts",
        [part(f"{len(states):,}", value=len(states)), part(" seen in 7 d", "small")],
        part([part(f"{len(silent):,} silent", "strong"), f": {names}{left}"], "bad")
        if silent
        else part("none silent", "muted"),
        part(", ".join(filter(None, words)), "warn" if firing else "muted"),
    )


# ---- the change

# A smaller change of a model's cost is not the largest change of the fleet.
LEAST_MOVED_PCT: Final = 2.0
# Time and energy differ together if a GPU is slower.
_LEAST_DIFFERENCE: Final = 0.01


def banner(
    found: FleetOutliers | None,
    units: Sequence[UnitChange] | None,
    assumed: Collection[str],
    *,
    is_failing: bool,
) -> dict[str, Any]:
    """Return the most expensive outlier as a sentence, else the model whose cost changed most.

    Args:
        found: The outliers; None before the first answer.
        units: The unit costs; None before the first answer.
        assumed: Currencies in which a price is assumed.
        is_failing: Whether an answer failed, so that the others are shown without it.
    """
    if found is None or (units is None and not found.outliers):
        waits = "No answer of the database yet, so GPUs are not compared."
        asks = "Comparing all GPUs with their peers: this takes some seconds…"
        return _calm(waits if is_failing else asks)
    if found.outliers:
        return _worst(found, assumed)
    calm = (
        f"No outlier: none of {counted(found.tested, 'GPU')} is slower or hungrier than its peers."
        if found.tested
        else "No GPU has enough peers with probes to be compared."
    )
    largest = max(units or (), key=lambda one: abs(one.change_24h_pct or 0.0), default=None)
    pct = None if largest is None else largest.change_24h_pct
    if largest is None or pct is None or abs(pct) < LEAST_MOVED_PCT:
        return _calm(calm)
    words = (
        f"costs {change(pct)} {'more' if pct > 0 else 'less'} than in the same hour a day before."
    )
    kind = "worse" if pct > 0 else "better"
    return {"kind": kind, "text": f"{largest.now.model} {words}", "notes": [calm]}


def _calm(text: str) -> dict[str, Any]:
    return {"kind": "calm", "text": text, "notes": []}


def _worst(found: FleetOutliers, assumed: Collection[str]) -> dict[str, Any]:
    first, count = found.outliers[0], len(found.outliers)
    metric, excess = "time", first.time
    if excess is None or (first.energy and first.energy.mean > excess.mean + _LEAST_DIFFERENCE):
        metric, excess = "energy", first.energy
    size = change(excess.mean * 100) if excess else ""
    cause = next((each.text for each in first.explanation.causes), "no signal differs")
    text = [
        _gpu_link(first.host, first.device),
        f" needs {size} more {metric} per inference than {counted(first.peer_count, 'peer')}: {cause}.",
        f" {todo_sentence(first.explanation.name, first.device)}",
    ]
    if (cost := first.cost) is not None:
        word = " assumed" if cost.currency in assumed else ""
        text.append(f" About {_modelled(cost.mean, cost.currency)}{word} more a month.")
    costs: dict[str, float] = defaultdict(float)
    for one in found.outliers:
        if one.cost is not None:
            costs[one.cost.currency] += one.cost.mean
    sums = " and ".join(_modelled(cost, currency) for currency, cost in costs.items())
    words = f"{counted(count, 'outlier')} of {counted(found.tested, 'GPU')}"
    every = part(f"{words}, {sums} a month" if sums else words, href="#outliers-title")
    return {"kind": "worse", "text": text, "notes": [every] if count > 1 else []}


def _modelled(per_month: float, currency: str) -> str:
    return money(per_month, currency, MODELLED)


def _gpu_link(host: str, device: str) -> Content:
    """Return the name of a GPU as a link that selects it on the page."""
    query = urlencode({"host": host, "device": device}, errors="replace")
    return part(f"{host} {device or 'all GPUs'}", href=f"?{query}")


# ---- models, spend, outliers


def units_table(
    found: Sequence[UnitChange],
    groups: Sequence[FleetGroup],
    assumed: Collection[str],
    none: str,
) -> dict[str, Any]:
    """Return a row for each model, and for each service of several hosts, with its roles as members.

    Args:
        found: The unit costs of models, those that cost most first.
        groups: The groups; of complete replicas only the models are listed.
        assumed: Currencies in which a price is assumed.
        none: What is said if there is none of either.
    """
    lines = [(one.cost_per_h or 0.0, [_unit_row(one)]) for one in found]
    parted = [one for one in groups if one.has_parts]
    lines += [
        # One without a price is first: it is what somebody has to do something about.
        (_per_h(one.cost, one) or math.inf, [_group_row(one, assumed), *_role_rows(one)])
        for one in parted
    ]
    lines.sort(key=lambda line: -line[0])
    of_day = "; services of several hosts: the last 24 hours" if parted else ""
    caption = f"The last hour, against the same hour a day and a week before{of_day}; those that cost most first"
    heads = ("Model", "#Cost now", "#24 h", "#7 d", "#An hour~", "On~")
    document = table(caption, heads, (row for _, rows in lines for row in rows), none=none)
    if not parted:
        return document
    tree: list[dict[str, Any]] = []
    for number, (_, rows) in enumerate(lines):
        key = str(number) if len(rows) > 1 else None
        tree.append({"of": None, "key": key, "members": "roles"})
        tree += [{"of": key, "key": None} for _ in rows[1:]]
    return document | {"tree": tree}


def _unit_row(one: UnitChange) -> list[Content]:
    now, is_probe = one.now, one.now.basis == "probe"
    mark = " assumed" if one.is_assumed else ""
    spread = f", spread {percent(one.spread)}" if one.spread and one.spread > LEAST_SPREAD else ""
    return [
        [part(now.model, "name"), " ", part("probe" if is_probe else "service", "basis")],
        [
            part(money(one.cost * one.scale, now.currency), "price", value=one.cost),
            part(f" / {scale_words(one.scale, one.unit)}{mark}", "small"),
        ],
        moved(one.change_24h_pct),
        moved(one.change_7d_pct),
        price(one.cost_per_h, now.currency),
        counted(now.series, "device" if is_probe else "host") + spread,
    ]


def _group_row(one: FleetGroup, assumed: Collection[str]) -> list[Content]:
    """Return the row of a group: the cost of its output tokens, else of a request, and that of its input."""
    mark = " assumed" if one.currency in assumed else ""
    unit, cost = "M tokens out", one.cost_per_million_tokens_out
    if cost is None:
        unit, cost = "request", one.cost_per_request
    of_input = one.cost_per_million_tokens_in
    more = len(one.problems) - PROBLEMS_MAX
    problems = [
        *one.problems[:PROBLEMS_MAX],
        *([f"{more:,} more: `costprobe compare --fleet --by group`"] if more > 0 else []),
    ]
    return [
        [
            *(part(one.group, "name"), " ", part("group", "basis")),
            *(
                part(f" {slo_words(asdict(level))}.", "warn" if level.is_missed else "small")
                for level in one.slo
            ),
            *(part(f" {problem}.", "warn") for problem in problems),
        ],
        UNKNOWN
        if cost is None
        else [
            part(money(cost, one.currency), "price", value=cost),
            part(f" / {unit}{mark}", "small"),
            part("" if of_input is None else f", {money(of_input, one.currency)} in", "small"),
        ],
        moved(one.change_24h_pct),
        moved(one.change_7d_pct),
        price(_per_h(one.cost, one), one.currency),
        f"{counted(one.hosts, 'host')}, {one.priced_h:,} of {one.period_h:,} h",
    ]


def _role_rows(one: FleetGroup) -> Iterator[list[Content]]:
    for role in one.roles:
        idle = "" if role.idle_share is None else f", {percent(role.idle_share)} idle"
        yield [
            part(role.role, "basis"),
            part(f"{percent(role.cost / one.cost)} of the cost", "small")
            if one.cost > 0
            else UNKNOWN,
            *("", ""),
            price(_per_h(role.cost, one), one.currency),
            f"{counted(role.hosts, 'host')}, {counted(role.devices, 'device')}{idle}",
        ]


def _per_h(cost: Decimal, group: FleetGroup) -> float | None:
    return float(cost / group.priced_h) if group.priced_h else None


def spend_table(spend: SpendByKey, shown: int, assumed: Collection[str]) -> dict[str, Any]:
    """Return the spend of the largest groups, the rest, and the total; a bar is what of it was used, and unused."""
    totals = {one.currency: one.cost for one in spend.total.costs}

    def rows(
        name: str, costs: Iterable[CurrencyCost], of: FleetSpend | None, *, has_bar: bool = True
    ) -> Iterator[list[Content]]:
        for number, one in enumerate(costs):
            whole = totals.get(one.currency, 0.0)
            share = one.cost / whole if whole > 0 else None
            idle = one.idle_share or 0.0
            # Energy and coverage are those of the group, whatever its currencies.
            own = of if number == 0 else None
            yield [
                name,
                price(one.cost, one.currency),
                UNKNOWN if share is None else change(share * 100),
                UNKNOWN if one.idle_share is None else percent(one.idle_share),
                UNKNOWN if own is None or own.energy_j is None else si(own.energy_j / HOUR_S, "Wh"),
                UNKNOWN if own is None or own.coverage is None else percent(own.coverage),
                part("", bar=[["service", share * (1 - idle)], ["idle", share * idle]])
                if share is not None and has_bar
                else "",
            ]

    left: dict[str, float] = defaultdict(float)
    for one in spend.parts[shown:]:
        for cost in one.costs:
            left[cost.currency] += cost.cost
    body = [
        row
        for one in spend.parts[:shown]
        for row in rows(" ".join(filter(None, one.group)) or "(none)", one.costs, one)
    ]
    more = (CurrencyCost(currency, cost, None) for currency, cost in left.items())
    body += rows(f"{len(spend.parts) - shown:,} more", more, None)
    if spend.rest is not None:
        body += rows("(unallocated)", spend.rest.costs, None)
    whole = list(rows("Total", spend.total.costs, spend.total, has_bar=False))
    note = f"; prices in {' and '.join(sorted(assumed))} are assumed" if assumed else ""
    # The total of the largest currency stands below; the others are rows before it.
    document = table(
        f"Hardware and electricity of all devices, unused time included{note}.",
        ("Group", "#Cost", "#Share", "#Unused", "#Energy~", "#Covered~", "Share as a bar~"),
        [*body, *whole[1:]],
        whole[0] if whole else (),
        none="No device had a cost in the last 24 hours.",
    )
    keys = [["service", "used"], ["idle", "unused"]] if body else []
    left_out = max(0, len(spend.parts) - shown)
    return {
        **document,
        "keys": keys,
        "more": f"Show all {len(spend.parts):,}" if left_out else "",
    }


# Outliers that are listed, the most expensive first.
OUTLIERS_MAX: Final = 50


def outliers_table(
    found: FleetOutliers, within: str, assumed: Collection[str], link_of: Link
) -> dict[str, Any]:
    """Return a row for each outlier, and what was compared."""

    def row(one: Outlier) -> list[Content]:
        url = link_of(one.host, one.device)
        page = [" ", part("page", href=url, said=f"page of {one.host}")] if url else []
        cost = one.cost
        mark = " assumed" if cost is not None and cost.currency in assumed else ""
        return [
            [_gpu_link(one.host, one.device), *page],
            _excess(one.time),
            _excess(one.energy),
            UNKNOWN
            if cost is None
            else part(_modelled(cost.mean, cost.currency) + mark, value=cost.mean),
            _why(one),
        ]

    left = len(found.outliers) - OUTLIERS_MAX
    compared = f"{counted(len(found.outliers), 'outlier')} of {counted(found.tested, 'GPU')}"
    above = f"at least {percent(LEAST_EFFECT)} above their peers"
    notes = [f"{compared}: {above}, at a nominal false discovery rate of {percent(FALSE_SHARE)}."]
    if found.untested:
        notes.append(f"{counted(found.untested, 'GPU')} without enough peers or runs.")
    if found.updated:
        why = "their software or model changed in the last 7 days"
        notes.append(f"{counted(found.updated, 'GPU')} not tested: {why}.")
    for _, level in found.levels:
        if (share := math.expm1(level.log_excess)) >= LEAST_EFFECT:
            words = f"+{change(share * 100)} time on {counted(level.hosts, 'host')}"
            notes.append(f"{within}={level.value}: {words}, not counted as a deviation.")
    if left > 0:
        notes.append(f"{left:,} more: `costprobe fleet outliers --csv`.")
    heads = ("GPU", "#Time", "#Energy~", "#A month", "Cause, and what to do")
    note = " ".join(notes)
    return table(note, heads, map(row, found.outliers[:OUTLIERS_MAX]), none=note)


def _excess(excess: Excess | None) -> Content:
    return UNKNOWN if excess is None else moved(excess.mean * 100)


def _why(one: Outlier) -> Content:
    causes = "; ".join(each.text for each in one.explanation.causes) or "no signal differs"
    name = part(one.explanation.name, "strong")
    return [name, f". {causes}: {action_of(one.explanation.name, one.device)}"]


# ---- the map

Metric = Literal["time", "energy"]
# With more devices in all, such as MIG devices, those of hosts do not stand in common columns.
COLUMNS_MAX: Final = 16
# With more hosts they stand in several columns.
LINES_MAX: Final = 40
# Excess in percent from which a colour counts, and its class.
_STEPS: Final = ((8, "s3"), (4, "s2"), (2, "s1"), (-2, "level"), (-4, "f1"), (-8, "f2"))
_LEAST: Final = "f3"
_WORDS: Final[Mapping[Metric, tuple[str, str]]] = {
    "time": ("faster", "slower"),
    "energy": ("less energy", "more energy"),
}
# A cell: the device, its classes, and its excess in percent; null for a device that a host lacks.
Cell = tuple[str, str, str] | None


class MapView(NamedTuple):
    """What of the map is shown.

    Attributes:
        metric: Deviation of the time or the energy per inference.
        order: `worst` for the hosts with the largest excess first, or `name`.
        shown: Most hosts.
        model: Only GPUs with this product name; empty for all.
        label: Label that hosts are grouped by; empty for none.
        within: Label whose levels are removed; empty for none.
    """

    metric: Metric
    order: Literal["worst", "name"]
    shown: int
    model: str
    label: str
    within: str


def map_document(
    found: GpuMap, silent_s: Mapping[str, float], view: MapView, none: str
) -> dict[str, Any]:
    """Return the shown hosts with their GPUs.

    Args:
        found: The GPUs.
        silent_s: Silent hosts, and for how long.
        view: What is shown.
        none: What is said without a GPU.
    """
    gpus = [gpu for gpu in found.gpus if view.model in ("", gpu.model)]
    columns = sorted({gpu.device for gpu in gpus}, key=natural)
    is_common = len(columns) <= COLUMNS_MAX
    hosts: dict[str, list[MappedGpu]] = defaultdict(list)
    for gpu in gpus:
        hosts[gpu.host].append(gpu)

    def worst(host: str) -> float:
        return max((_share(gpu, view.metric) or 0.0 for gpu in hosts[host]), default=0.0)

    def listed(host: str) -> bool:
        return any(gpu.excess.is_listed for gpu in hosts[host])

    order: Callable[[str], Any] = natural
    if view.order == "worst":
        order = lambda host: (not listed(host), -worst(host), natural(host))  # noqa: E731 - one of two
    shown = sorted(hosts, key=order)[: view.shown]
    if view.label:
        # Stable: within a group the order remains; groups follow their first host.
        labels = [hosts[host][0].label for host in shown]
        places = {label: labels.index(label) for label in labels}
        shown.sort(key=lambda host: places[hosts[host][0].label])
    is_grouped = any(hosts[host][0].label for host in shown)
    less, more = _WORDS[view.metric]
    is_whole = len(shown) > LINES_MAX
    ends = f"; from left to right {columns[0]} to {columns[-1]}" if is_whole and is_common else ""
    return {
        "name": f"Deviation of {view.metric} per inference from peers",
        "said": f"{view.metric} {{}} % against its peers",
        "is_whole": is_whole,
        "columns": columns if is_common and not is_whole else None,
        "none": none,
        "models": sorted({gpu.model for gpu in found.gpus}),
        "ends": [f"8 % {less}", f"8 % {more}"],
        "keys": [
            ["level", "within 2 %"],
            ["level listed", "outlier"],
            ["none", "not tested"],
            ["level silent", "silent"],
        ],
        "note": f"{len(shown):,} of {counted(len(hosts), 'host')}, {counted(len(gpus), 'GPU')}; medians of the last 7 days{ends}. ",
        "more": f"Show all {len(hosts):,}"
        if len(shown) < len(hosts)
        else "Show fewer"
        if is_whole
        else "",
        "rows": [
            {
                "host": host,
                "group": (hosts[host][0].label or "without the label") if is_grouped else None,
                "silent": f"silent for {ago(silent_s[host])}" if host in silent_s else "",
                "cells": _cells(hosts[host], columns if is_common else (), view.metric),
            }
            for host in shown
        ],
    }


def _cells(gpus: Sequence[MappedGpu], columns: Sequence[str], metric: Metric) -> list[Cell]:
    cells: dict[str, Cell] = {gpu.device: _cell(gpu, metric) for gpu in gpus}
    return [cells.get(device) for device in columns or sorted(cells, key=natural)]


def _cell(gpu: MappedGpu, metric: Metric) -> Cell:
    share = _share(gpu, metric)
    listed = " listed" if gpu.excess.is_listed else ""
    if share is None:
        return gpu.device, f"none{listed}", ""
    pct = share * 100
    kind = next((name for least, name in _STEPS if pct >= least), _LEAST)
    sign = "+" if pct > 0 else "\N{MINUS SIGN}" if pct < 0 else ""
    return gpu.device, f"{kind}{listed}", sign + change(pct).removesuffix(" %")


def _share(gpu: MappedGpu, metric: Metric) -> float | None:
    return gpu.excess.time if metric == "time" else gpu.excess.energy


# ---- one GPU


class GpuFigures(NamedTuple):
    """What one GPU cost.

    Attributes:
        total: Its spend.
        unit_costs: Unit costs of the probes on it.
        assumed: Currencies in which its price is assumed.
    """

    total: FleetSpend
    unit_costs: Sequence[FleetUnitCost]
    assumed: Collection[str]


def gpu_document(
    name: tuple[str, str],
    found: GpuMap | None,
    silent_s: Mapping[str, float],
    figures: GpuFigures | None,
    url: str | None,
) -> dict[str, Any]:
    """Return the deviation of a GPU with its cause, and what it cost.

    Args:
        name: Host and device; an empty device for all GPUs of the host.
        found: The GPUs; None before the first answer.
        silent_s: Silent hosts, and for how long.
        figures: What it cost; None before the first answer.
        url: Address of the host's page.
    """
    host, device = name
    texts: list[Content] = []
    facts: list[tuple[str, Content]] = []
    if host in silent_s:
        texts.append(part(f"The host has been silent for {ago(silent_s[host])}.", "bad"))
    gpus, outliers = ((), ()) if found is None else (found.gpus, found.outliers.outliers)
    own = (one for one in outliers if one.host == host and one.device in ("", device))
    outlier = next(own, None)
    gpu = next((one for one in gpus if (one.host, one.device) == name), None)
    if outlier is not None:
        texts.append(["Cause: ", *_why(outlier)])
        facts += _compared(outlier)
    elif gpu is not None and gpu.excess.time is None:
        texts.append(
            "Not compared: too few runs or peers, or its software or model changed in the last 7 days."
        )
    elif gpu is not None:
        pct = moved((gpu.excess.time or 0.0) * 100)
        texts.append(["Deviation from its peers: ", pct, ". It is no outlier."])
    if figures is not None:
        facts += _costs(figures)
    if url:
        texts.append(part(f"Page of {host}", href=url))
    return {"title": f"{host} {device or 'all GPUs'}", "texts": texts, "facts": facts}


def _compared(one: Outlier) -> Iterator[tuple[str, Content]]:
    for metric, excess in (("time", one.time), ("energy", one.energy)):
        if excess is not None:
            ends = f" {excess.low * 100:.2g} to {excess.high * 100:.2g} %"
            yield f"{metric} per inference", [moved(excess.mean * 100), part(ends, "small")]
    if (cost := one.cost) is not None:
        amounts = (cost.mean, cost.low, cost.high)
        mean, low, high = (_modelled(each, cost.currency) for each in amounts)
        yield "excess cost", f"{mean} a month at the present use ({low} to {high})"
    peers = ", ".join(filter(None, one.peers))
    yield "compared with", f"{one.peer_count:,} of {peers}"


def _costs(figures: GpuFigures) -> Iterator[tuple[str, Content]]:
    total = figures.total
    for one in total.costs:
        idle = "" if one.idle_share is None else f", unused {percent(one.idle_share)}"
        mark = " assumed" if one.currency in figures.assumed else ""
        yield "cost, 24 h", [price(one.cost, one.currency), mark + idle]
    if total.energy_j is not None:
        yield "energy, 24 h", si(total.energy_j, "J")
    if total.coverage is not None:
        yield "covered", percent(total.coverage)
    for each in figures.unit_costs:
        if each.basis == "probe" and each.cost_per_inference is not None:
            amount = money(each.cost_per_inference * 1_000_000, each.currency)
            yield each.model, part(f"{amount} / M inferences", value=each.cost_per_inference)
