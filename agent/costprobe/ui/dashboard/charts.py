"""What the charts of the page draw: lines over time, marks, incidents and curves, formatted here.

A value that the pointer chooses is written by the page: a number with three digits between the `before` and
`after` of its `amount`, times its `scale_samples`.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.money import common_scale, is_amount, is_each, money
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import ASSUMED
from costprobe.core.units import counted
from costprobe.probing.load_curve import curve_from_rows, is_load_row
from costprobe.ui.amounts import UNKNOWN, si
from costprobe.ui.dashboard.cells import Content, table
from costprobe.ui.dashboard.fields import trend_field
from costprobe.ui.dashboard.now import NS_PER_MS, scale_words
from costprobe.ui.dashboard.parameters import TAGS, TimeRange, TrendQuery
from costprobe.ui.dashboard.trend import BASE_DAYS, ThinnedSeries, TrendAnswer
from costprobe.ui.incidents import incidents_of
from costprobe.ui.text import dated, labels_text, utc

# ---- lines over time

# More lines cannot be told apart; others are chosen in the legend.
LINES_SHOWN: Final = 8
# Changes of plan and labels of each series, the newest.
CHANGES_MAX: Final = 20
# Tags that distinguish series; other tags are the same on most hosts.
_IDENTITY: Final = ("device", "probe", "service", "served_model")
_DISTINGUISHING: Final = (*_IDENTITY, "batch", "concurrency", "basis", "plan", "currency")


def trend_document(query: TrendQuery, answer: TrendAnswer) -> dict[str, Any]:
    """Return the response of `/api/trend`."""
    field, is_change = trend_field(query), answer.scale == "change"
    names = line_names(answer.series, query.group)
    currencies = {one.tags["currency"] for one in answer.series if one.tags.get("currency")}
    currency = currencies.pop() if len(currencies) == 1 else ""

    def amount(prices: Iterable[float | None]) -> dict[str, Any]:
        return _amount(query, field.unit, currency, prices)

    middles = (one.base or statistics.median(one.values) for one in answer.series)
    shared = amount(middles)
    first = most_changed([one.values for one in answer.series])
    return {
        "measurement": query.measurement,
        "field": query.field,
        "since_ms": query.time.since_ns // NS_PER_MS,
        "until_ms": query.time.until_ns // NS_PER_MS,
        "scale": answer.scale,
        "base_d": BASE_DAYS,
        "hourly": answer.is_hourly,
        "left_out": answer.left_out,
        "without_base": answer.without_base,
        "label": field.label,
        "axis": f"change from the median of {BASE_DAYS} days, %"
        if is_change
        else field.label
        if shared["scale_samples"] == 1
        else f"cost {shared['unit']}",
        "unit": "" if is_change else shared["unit"],
        "first_note": f"{len(first)} of {len(names)} lines are shown, those that changed most; the legend has the others."
        if len(first) < len(names)
        else "",
        "notes": list(_notes(query, answer, names)),
        "none": f"No change to draw: no series has a median above 0 in the last {BASE_DAYS} days."
        if answer.without_base
        else f"No {field.label} in {{range}}{_filter_words(query)}.",
        "series": [
            {
                "name": name,
                "is_first": number in first,
                "amount": amount([series.base or 0.0]) if is_change else shared,
                "tags": series.tags,
                "samples": series.samples,
                "times_ms": [time_ns // NS_PER_MS for time_ns in series.times_ns],
                "values": series.values,
                "lows": series.lows,
                "highs": series.highs,
                "base": series.base,
                "members": series.members,
                "outlier": series.is_outlier,
                "changes": [
                    {
                        "time_ms": change.time_ns // NS_PER_MS,
                        "tag": change.tag,
                        "before": change.before,
                        "after": change.after,
                    }
                    for change in series.changes[-CHANGES_MAX:]
                ],
            }
            for number, (name, series) in enumerate(zip(names, answer.series, strict=True))
        ],
    }


def _amount(
    query: TrendQuery, unit: str, currency: str, prices: Iterable[float | None]
) -> dict[str, Any]:
    """Return how values of a field are written: a price for one at the scale of the lowest."""
    if not is_amount(query.measurement, query.field):
        return {"scale_samples": 1, "before": "", "after": "", "unit": unit}
    before, _, after = money(1, currency).partition("1.00")
    factor = 1
    if is_each(query.measurement, query.field):
        factor = common_scale(prices)
        unit = f"per {scale_words(factor, unit or 'inference')}"
    return {"scale_samples": factor, "before": before, "after": after, "unit": unit}


def line_names(all_series: Sequence[ThinnedSeries], group: str) -> list[str]:
    """Return distinct names of series or groups; a group says how many it is of."""
    nouns = {"model": "device", "device": "model"}
    names = []
    for name, one in zip(series_names([each.tags for each in all_series]), all_series, strict=True):
        own = one.tags.get("model", name) if name == "all" else name
        if one.is_outlier:
            own += ", outlier"
        elif group in nouns and one.members > 1:
            own += f" ({counted(one.members, nouns[group])})"
        names.append(own)
    return names


def series_names(all_tags: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a name for each series from its tags, without those that all have in common; names are distinct."""

    def differs(tag: str) -> bool:
        return len({tags.get(tag, "") for tags in all_tags}) > 1

    def named(tags: Mapping[str, str]) -> str:
        words = (
            f"batch {tags[tag]}" if tag == "batch" else tags[tag] for tag in shown if tags.get(tag)
        )
        return " ".join(words) or "all"

    shown = [tag for tag in _DISTINGUISHING if tag in _IDENTITY or differs(tag)]
    names = [named(tags) for tags in all_tags]
    if len(set(names)) == len(names):
        return names
    # Tags that only some hosts have, such as labels.
    others = sorted({tag for tags in all_tags for tag in tags if tag not in shown and differs(tag)})
    return [
        " ".join([name, *(f"{tag}={tags[tag]}" for tag in others if tags.get(tag))])
        for name, tags in zip(names, all_tags, strict=True)
    ]


def most_changed(lines: Sequence[Sequence[float]]) -> set[int]:
    """Return the numbers of the lines that changed most from begin to end, at most LINES_SHOWN."""

    def size(number: int) -> float:
        values = lines[number]
        tenth = max(1, len(values) // 10)
        first, last = statistics.fmean(values[:tenth]), statistics.fmean(values[-tenth:])
        return abs(last - first) / (abs(statistics.fmean(values)) or 1.0)

    return set(sorted(range(len(lines)), key=size, reverse=True)[:LINES_SHOWN])


def _notes(query: TrendQuery, answer: TrendAnswer, names: Sequence[str]) -> Iterator[str]:
    if answer.left_out:
        yield f"{answer.left_out} more series are left out: filter by device or model."
    if answer.without_base:
        yield f"{answer.without_base} series without a median above 0 in the last {BASE_DAYS} days are left out."
    if answer.scale == "change" and query.scale != "change":
        why = (
            "models of a device have different costs"
            if query.group == "device"
            else "the amounts differ too much for one axis"
        )
        yield f"Shown as change, because {why}."
    changes = [
        (change, name)
        for name, series in zip(names, answer.series, strict=True)
        for change in series.changes[-CHANGES_MAX:]
    ]
    if changes:
        newest, name = max(changes, key=lambda one: one[0].time_ns)
        more = f" ({len(changes)} changes of plan or label)" if len(changes) > 1 else ""
        words = f"{newest.tag} {newest.before or 'none'} to {newest.after or 'none'}"
        yield f"{name}: {words} on {utc(newest.time_ns)}{more}."
    is_assumed = any(one.tags.get("plan") == ASSUMED for one in answer.series)
    if is_assumed and is_amount(query.measurement, query.field):
        yield "The price is assumed: set [[price]]."
    if answer.is_hourly:
        yield "Hours were read, evenly spaced."


def _filter_words(query: TrendQuery) -> str:
    own = [query.tags[tag] for tag in ("device", "probe", "service") if tag in query.tags]
    labels = [f"{name}={value}" for name, value in query.tags.items() if name not in TAGS]
    return f" for {', '.join([*own, *labels])}" if own or labels else ""


# ---- marks and incidents

MARKS_MAX: Final = 500
INCIDENTS_MAX: Final = 200
ALERT_ROWS_MAX: Final = 20_000
# How long before a time range an incident may have fired that is in it.
FIRING_MAX_S: Final = 30 * 86_400.0
_LETTERS: Final = {
    "drift": "D", "anomaly": "A", "price": "P", "software": "S", "fault": "F", "annotation": "N", "incident": "I",
}  # fmt: skip


class _Mark(NamedTuple):
    time_ns: int
    end_ns: int | None
    kind: str
    tags: Mapping[str, str]
    title: str
    details: str


def marks_document(reader: StoreReader, time: TimeRange, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the newest events and the incidents of a time range, oldest first, and their table.

    Args:
        reader: The store.
        time: The time range.
        tags: Device, probe and service; a mark of another one is left out.

    Raises:
        StoreError: The store cannot be read.
    """
    marks = [*_events(reader, time), *map(_incident_mark, _incidents(reader, time)[:INCIDENTS_MAX])]
    own = [
        mark
        for mark in sorted(marks, key=lambda one: one.time_ns)
        if all(mark.tags.get(tag, value) == value for tag, value in tags.items())
    ]
    heads = ("Time", "Kind", "Series", "Event", "Details")
    rows = [
        [utc(one.time_ns), f"{_letter(one)} {one.kind}", _subject(one), one.title, one.details]
        for one in reversed(own)
    ]
    return {"marks": [_mark(one) for one in own], "table": table("The newest first", heads, rows)}


def _mark(one: _Mark) -> dict[str, Any]:
    text = "; ".join(filter(None, (one.title, one.details)))
    return {
        "time_ms": one.time_ns // NS_PER_MS,
        "end_ms": None if one.end_ns is None else one.end_ns // NS_PER_MS,
        "kind": one.kind,
        "letter": _letter(one),
        "text": f"{utc(one.time_ns)}, {one.kind}: {text}",
    }


def _letter(one: _Mark) -> str:
    return _LETTERS.get(one.kind, "?")


def _subject(one: _Mark) -> str:
    tags = one.tags
    return " ".join(filter(None, (tags.get("device"), tags.get("probe") or tags.get("service"))))


def _events(reader: StoreReader, time: TimeRange) -> Iterator[_Mark]:
    for row in deque(reader.points("event", time.since_ns, time.until_ns), maxlen=MARKS_MAX):
        title, detail, cause = (
            str(row.fields.get(name, "")) for name in ("title", "detail", "cause")
        )
        details = "; ".join(
            filter(None, (detail, f"cause: {cause}" if cause not in detail else ""))
        )
        kind = row.tags.get("kind", "")
        yield _Mark(
            row.time_ns,
            None,
            kind,
            row.tags,
            dated(title, row.time_ns),
            dated(details, row.time_ns),
        )


def _incident_mark(incident: Mapping[str, Any]) -> _Mark:
    fired_ns, resolved_ns = incident["fired_ns"], incident["resolved_ns"]
    cause = incident.get("cause")
    details = [
        "firing" if resolved_ns is None else f"resolved {utc(resolved_ns)}",
        incident.get("severity"),
        f"cause: {cause}" if cause else "",
    ]
    title = dated(incident.get("summary") or incident.get("name") or "", fired_ns)
    # One that fires still ends after every range.
    end_ns = 2**62 if resolved_ns is None else resolved_ns
    tags = incident.get("labels") or {}
    return _Mark(fired_ns, end_ns, "incident", tags, title, "; ".join(filter(None, details)))


def incidents_document(reader: StoreReader, time: TimeRange) -> dict[str, Any]:
    """Return a table of the incidents that fired within a time range or up to it, newest first.

    Raises:
        StoreError: The store cannot be read.
    """
    found = _incidents(reader, time)

    def row(one: Mapping[str, Any]) -> list[Content]:
        fired_ns, resolved_ns = one["fired_ns"], one["resolved_ns"]
        return [
            utc(fired_ns),
            "still firing" if resolved_ns is None else utc(resolved_ns),
            one.get("severity") or "",
            one.get("name") or "",
            labels_text(one.get("labels") or {}),
            dated(one.get("summary") or "", fired_ns),
            dated(one.get("detail") or one.get("cause") or "", fired_ns),
        ]

    left = len(found) - INCIDENTS_MAX
    caption = "The newest first" + (f"; {left} earlier ones are left out" if left > 0 else "")
    heads = ("Fired", "Resolved", "Severity", "Rule", "Labels", "Summary", "Cause")
    none = "No incident in this period."
    return table(caption, heads, map(row, found[:INCIDENTS_MAX]), none=none)


def _incidents(reader: StoreReader, time: TimeRange) -> list[Mapping[str, Any]]:
    first_ns = time.since_ns - int(FIRING_MAX_S * NS_PER_S)
    rows = deque(reader.points("alert", first_ns, time.until_ns), maxlen=ALERT_ROWS_MAX)
    incidents = [
        incident
        for incident in incidents_of(rows)
        if incident["resolved_ns"] is None or incident["resolved_ns"] >= time.since_ns
    ]
    return sorted(incidents, key=lambda incident: incident["fired_ns"], reverse=True)


# ---- curves by batch size and load

CURVES_MAX: Final = 40
ROWS_MAX: Final = 20_000
# Tags of a point, which its curve does not have.
_OF_POINT: Final = {"batch", "threads", "loop", "step", "concurrency"}
# The cheapest point of a load curve.
_CHEAPEST_PX: Final = 14
Write = Callable[[float], str]


def sweeps_document(reader: StoreReader, now_ns: int) -> dict[str, Any]:
    """Return the newest batch-size curve and the newest load curve of each probe on each device as charts.

    Raises:
        StoreError: The store cannot be read.
    """
    newest: dict[tuple[str, str, bool], int] = {}
    for row in reader.last("sweep", now_ns):
        key = (row.tags.get("device", ""), row.tags.get("probe", ""), is_load_row(row))
        newest[key] = max(newest.get(key, 0), row.time_ns)
    latest = sorted(newest.items(), key=lambda item: item[1], reverse=True)
    found: dict[bool, list[tuple[Mapping[str, str], dict[str, Any]]]] = {False: [], True: []}
    for (device, probe, is_load), time_ns in latest[:CURVES_MAX]:
        tags = {"device": device, "probe": probe}
        every = islice(reader.points("sweep", time_ns, time_ns + 1, tags), ROWS_MAX)
        rows = [row for row in every if is_load_row(row) == is_load]
        own = {name: value for name, value in rows[0].tags.items() if name not in _OF_POINT}
        chart = _load_chart(rows, time_ns) if is_load else _batch_chart(rows, time_ns)
        found[is_load].append((own, chart))
    charts = [
        {"name": f"{name}, {'load' if is_load else 'batch size'}", **chart}
        for is_load, curves in found.items()
        for name, (_, chart) in zip(series_names([tags for tags, _ in curves]), curves, strict=True)
    ]
    return {"left_out": max(0, len(latest) - CURVES_MAX), "charts": charts}


def _money_axis(label: str, currency: str, **more: object) -> dict[str, Any]:
    before, _, after = money(1, currency).partition("1.00")
    return {"scale": "y", "label": label, "before": before, "after": after, **more}


def _plain_axis(label: str, **more: object) -> dict[str, Any]:
    return {"scale": "y", "label": label, "before": "", "after": "", **more}


def _figure(value: float) -> str:
    return money(value, "")


def _ms(value: float) -> str:
    return si(value / 1000, "s")


def _per_s(value: float) -> str:
    return f"{_figure(value)} /s"


def _joules(value: float) -> str:
    return si(value, "J")


def _optional(value: float | None, write: Write) -> str:
    return UNKNOWN if value is None else write(value)


def _batch_chart(rows: Iterable[Point], time_ns: int) -> dict[str, Any]:
    """Return a sweep; of several numbers of threads of a CPU the fastest of each batch size."""
    fastest: dict[int, Point] = {}
    for row in rows:
        batch = row.tags.get("batch", "")
        if batch.isascii() and batch.isdigit():
            before = fastest.get(int(batch))
            if before is None or _speed(row) >= _speed(before):
                fastest[int(batch)] = row
    points = sorted(fastest.items())
    currency = next((row.tags.get("currency", "") for _, row in points), "")
    costs = [number(row, "cost_per_inference") for _, row in points]
    has_cost = bool(costs) and None not in costs
    scale = common_scale(costs) if has_cost else 1
    words = f"cost per {scale_words(scale, 'inference')}"
    latencies = [number(row, "latency_p50_ms") for _, row in points]
    if has_cost:
        values = [None if cost is None else cost * scale for cost in costs]
        right = _money_axis(words, currency, scale="right", side=1)
        texts = [_optional(value, lambda v: money(v, currency)) for value in values]
    else:
        values = [number(row, "throughput_per_s") for _, row in points]
        right = _plain_axis("throughput, /s", scale="right", side=1)
        texts = [_optional(value, _per_s) for value in values]
    cheapest = next((batch for batch, row in points if row.fields.get("cheapest")), None)
    best = "" if cheapest is None else f"batch {cheapest} is the cheapest; "
    table_rows = [
        [
            str(batch),
            _optional(number(row, "latency_p50_ms"), _ms),
            _optional(number(row, "throughput_per_s"), _per_s),
            _optional(number(row, "energy_per_inference_j"), _joules),
            _optional(cost, lambda v: money(v * scale, currency)),
            "cheapest" if batch == cheapest else "",
        ]
        for (batch, row), cost in zip(points, costs, strict=True)
    ]
    heads = ("#Batch", "#Latency p50", "#Throughput", "#Energy", f"#{words}", "Note")
    return {
        "xs": [batch for batch, _ in points],
        "ticks": [str(batch) for batch, _ in points],
        "label_x": "batch",
        "is_log_x": True,
        "axes": [_plain_axis("latency p50, ms"), right],
        "series": [
            {"name": "latency p50", "values": latencies, "texts": [_optional(v, _ms) for v in latencies]},
            {"name": right["label"], "values": values, "texts": texts, "scale": "right"},
        ] if points else [],
        "note": "",
        "summary": f"{best}measured {utc(time_ns)}",
        "table": table("", heads, table_rows),
        "none": "This sweep has no batch size.",
    }  # fmt: skip


def _speed(row: Point) -> float:
    return number(row, "throughput_per_s") or 0.0


# Columns of the table: tokens have times of their own, another response has its latency.
_COLUMNS: Final[Mapping[str, Sequence[tuple[str, str, Write]]]] = {
    "token": (
        ("Requests", "throughput_per_s", _per_s),
        ("Tokens out", "tokens_out_per_s", _per_s),
        ("TTFT p50", "ttft_p50_ms", _ms),
        ("p90", "ttft_p90_ms", _ms),
        ("TPOT p50", "tpot_p50_ms", _ms),
        ("p90", "tpot_p90_ms", _ms),
        ("Energy, M tokens out", "energy_per_million_tokens_out_j", _joules),
        ("Goodput", "goodput_per_s", _per_s),
    ),
    "request": (
        ("Requests", "throughput_per_s", _per_s),
        ("Latency p50", "latency_p50_ms", _ms),
        ("p90", "latency_p90_ms", _ms),
        ("Energy, request", "energy_per_inference_j", _joules),
        ("Goodput", "goodput_per_s", _per_s),
    ),
}
_VERDICTS: Final = {True: "meets the SLO", False: "misses the SLO"}


class _Load(NamedTuple):
    """A point of a load curve: its row, its load, and its place in the chart."""

    row: Point
    text: str
    speed: float | None
    up: float | None


def _load_chart(rows: Sequence[Point], time_ns: int) -> dict[str, Any]:
    """Return a load curve: the cost, or without a price the throughput, against the speed of one user."""
    by_load = {(row.tags["loop"], row.tags.get("step", "")): row for row in rows}
    known = [
        (one, by_load[one.loop, str(one.number)])
        for one in curve_from_rows(rows, {}).points
        if (one.loop, str(one.number)) in by_load
    ]
    unit = "token" if any(number(row, "tokens_out_per_s") for row in rows) else "request"
    currency = rows[0].tags.get("currency", "")
    slo = next((str(row.fields["slo"]) for row in rows if "slo" in row.fields), "")
    speed, best_words = f"{unit}s/s of a user", "costs least"
    if all(one.cost is not None for one, _ in known if one.speed is not None):
        # The cost of tokens is that of a million already.
        costs = (one.cost for one, _ in known)
        scale = 1 if unit == "token" else common_scale(costs)
        per = scale_words(1_000_000 if unit == "token" else scale, unit)
        axis = _money_axis(f"cost per {per}", currency)
        loads = [
            _Load(row, one.text, one.speed, None if one.cost is None else one.cost * scale)
            for one, row in known
        ]
        write: Write = lambda value: f"{money(value, currency)} per {per}"  # noqa: E731 - one of two
        brief: Write = lambda value: money(value, currency)  # noqa: E731 - as above
    else:
        axis, best_words = _plain_axis(f"{unit}s/s"), "has the most throughput"
        loads = [_Load(row, one.text, one.speed, one.work_per_s) for one, row in known]
        write, brief = lambda value: f"{_figure(value)} {unit}s/s", _figure
    drawn = sorted(
        (one for one in loads if one.speed is not None), key=lambda one: one.speed or 0.0
    )
    best = next((one for one in drawn if one.row.fields.get("cheapest")), None)
    note = _load_note(
        best, slo, f"{best_words}: {_optional(best.up, write)}" if best else "", speed
    )

    def line(name: str, is_member: Callable[[_Load], Any], **more: object) -> dict[str, Any]:
        values = [one.up if is_member(one) else None for one in drawn]
        texts = [f"{_optional(one.up, write)}, {one.text}" for one in drawn]
        return {"name": name, "values": values, "texts": texts, **more}

    lines = [
        line("best at its speed", lambda one: one.row.fields.get("front")),
        line("other loads", lambda one: not one.row.fields.get("front"), is_scatter=True),
        line(
            "cheapest within the SLO" if slo else "cheapest",
            lambda one: one is best,
            is_scatter=True,
            size_px=_CHEAPEST_PX,
            last=best.text if best else "",
        ),
    ]  # fmt: skip
    heads = (
        "Load",
        f"#{axis['label']}",
        f"#{speed}",
        *(f"#{name}" for name, _, _ in _COLUMNS[unit]),
        "Note",
    )
    table_rows = [
        [
            one.text,
            _optional(one.up, brief),
            _optional(one.speed, _figure),
            *(_optional(number(one.row, field), each) for _, field, each in _COLUMNS[unit]),
            _load_verdict(one.row),
        ]
        for one in loads
    ]
    return {
        "xs": [one.speed for one in drawn],
        "ticks": [_optional(one.speed, _figure) for one in drawn],
        "label_x": speed,
        "is_log_x": False,
        "axes": [axis],
        "series": [one for one in lines if any(value is not None for value in one["values"])],
        "note": note,
        "summary": f"{note} Measured {utc(time_ns)}".strip(),
        "table": table("", heads, table_rows),
        "none": "No load of this curve has a known speed.",
    }


def _load_note(best: _Load | None, slo: str, words: str, speed: str) -> str:
    text = "no load is known to meet it"
    if best is not None:
        text = f"{best.text} {words}, {_optional(best.speed, _figure)} {speed}"
    if slo:
        return f"Within the SLO {slo}: {text}."
    return "" if best is None else f"Without an SLO, {text}."


def _load_verdict(row: Point) -> str:
    fields = row.fields
    place = (
        "cheapest" if fields.get("cheapest") else "best at its speed" if fields.get("front") else ""
    )
    return ", ".join(filter(None, (place, _VERDICTS.get(fields.get("meets_slo"), ""))))  # type: ignore[call-overload]
