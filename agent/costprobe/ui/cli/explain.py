"""`costprobe explain`: why cost changed between two periods: exact parts, causes, events, money."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final

import click

from costprobe.adapters.store.database import decoding
from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.periods import TimeSpan
from costprobe.core.records import Point
from costprobe.core.units import counted, percent, significant
from costprobe.drift.causes import Cause, Share
from costprobe.drift.explain import (
    Basis,
    ComparedPeriods,
    ExplainedSeries,
    Explaining,
    subject_of,
)
from costprobe.drift.message import ChangeFacts, ChangeMessage, change_message
from costprobe.drift.periods import PeriodChange
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import (
    STORED_DEVICES,
    STORED_PROBES,
    STORED_SERVICES,
    check_names,
)
from costprobe.ui.cli.support.option_types import MOMENT
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.text import in_local_zone, local

EVENTS_SHOWN = 20
# Two durations before now are not read at the same instant.
SAME_NS = 1_000_000_000
_BASIS: Final[Mapping[Basis, str]] = {
    "given": "",
    "incident": ": since an open incident began",
    "change": ": since the largest change of two days; no incident is open",
    "reverted": ": around a drift that reverted; no incident is open",
    "halves": "; no incident is open",
}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe explain  # since an open incident began, or the largest change of two days",
        "costprobe explain --since 24h  # the last day against the day before",
        (
            "costprobe explain --probe ranker --between 8d 7d --and 24h 0h"
            "  # the last day against the same day a week ago"
        ),
    ),
)
@click.option(
    "--since",
    "since_ns",
    type=MOMENT,
    help="Compare the time since then with as long before it.",
)
@click.option(
    "--between",
    type=(MOMENT, MOMENT),
    metavar="A B",
    help="Start and end of the earlier period.",
)
@click.option(
    "--and",
    "later",
    type=(MOMENT, MOMENT),
    metavar="C D",
    help="Start and end of the later period.",
)
@click.option("--probe", shell_complete=STORED_PROBES, help="Only this probe.")
@click.option("--device", shell_complete=STORED_DEVICES, help="Only probes on this device.")
@click.option("--service", shell_complete=STORED_SERVICES, help="Only this service.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    config: str | None,
    /,
    *,
    since_ns: int | None,
    between: tuple[int, int] | None,
    later: tuple[int, int] | None,
    as_json: bool,
    **selected: str | None,
) -> None:
    """Explain the change of cost between two periods, as an alert does.

    Without periods, the time since the open incident of a series began is compared with the day before. Without an
    incident these are the times around a drift that has reverted, else before and after the largest change of two
    days; for a service the last day and the day before.

    For each probe and service: the change in money, its exact parts (price, time, energy; of services
    idle time, speed and mix), the causes with their shares, and the events and annotations.
    """
    now_ns = time.time_ns()
    periods = _periods(since_ns, between, later, now_ns)
    tags = {name: value for name, value in selected.items() if value}
    settings = Settings(config)
    with reader_of(settings) as reader:
        check_names(reader, settings, tags)
        with decoding(settings.store_path):
            explaining = Explaining(reader, periods, now_ns)
        found = list(explaining.series(tags))
        events = explaining.events(tags)
    echo_answer(_document(found, events), _lines(found, events), as_json=as_json)


def _periods(
    since_ns: int | None,
    between: tuple[int, int] | None,
    later: tuple[int, int] | None,
    now_ns: int,
) -> ComparedPeriods | None:
    if (between is None) != (later is None) or (between is not None and since_ns is not None):
        raise bad_input("give --since, or --between A B and --and C D")
    if since_ns is not None:
        between, later = (2 * since_ns - now_ns, since_ns), (since_ns, now_ns)
    if between is None or later is None:
        return None
    if 0 < between[1] - later[0] < SAME_NS:
        between = between[0], later[0]
    if not 0 <= between[0] < between[1] <= later[0] < later[1]:
        raise bad_input(
            "each period must end after its start, and the earlier one before the later"
        )
    return ComparedPeriods(TimeSpan(*between), TimeSpan(*later))


def _lines(found: Sequence[ExplainedSeries], events: Sequence[Point]) -> Iterator[str]:
    if not found:
        yield "no series in the store; see costprobe status"
    compared, is_listing = "", False
    for series in found:
        before, after = (
            f"{local(span.start_ns)} to {local(span.end_ns)}" for span in series.periods
        )
        heading = f"{after} against {before}{_BASIS[series.basis]}"
        change, was_listing = series.change, is_listing
        is_listing = change is None or (len(found) > 1 and _is_noise(change.facts))
        if heading != compared or not (was_listing and is_listing):
            yield from [""] * bool(compared)
        if heading != compared:
            yield from (heading, "")
            compared = heading
        if change is None:
            yield one_line(f"{_name(series)}: {series.problem}")
        elif is_listing:
            yield one_line(_message(change, None).headline)
        else:
            yield from _change_lines(change)
    yield ""
    if not events:
        yield "no events in these periods"
        return
    if len(events) > EVENTS_SHOWN:
        yield f"{counted(len(events) - EVENTS_SHOWN, 'older event')} not shown"
    rows = [_event_cells(row) for row in events[-EVENTS_SHOWN:]]
    yield from table_lines(
        [("time", "event", "of", "what"), *rows], 4, (0, 1, 2, 0), has_prose=True
    )


def _event_cells(row: Point) -> tuple[str, ...]:
    texts = [str(row.fields.get(name, "")) for name in ("title", "detail")]
    what = in_local_zone("; ".join(filter(None, texts)), row.time_ns)
    return local(row.time_ns), row.tags.get("kind", ""), one_line(subject_of(row)), what


def _is_noise(facts: ChangeFacts) -> bool:
    """Return whether neither the cost beyond its noise nor a price has changed."""
    return facts.explanation.noise is not None and facts.price is None


def _name(series: ExplainedSeries) -> str:
    tags = series.tags
    return tags.get("service") or f"{tags['probe']} on {tags['device']}"


def _message(change: PeriodChange, zone: tzinfo | None) -> ChangeMessage:
    """Return the message of a change, which states a noise where there is no change beyond it."""
    facts = change.facts
    if facts.explanation.noise is None:
        return change_message(facts, zone=zone)
    noise = f"no change beyond its noise of ±{percent(facts.explanation.noise, 1)}"
    if facts.price is None:
        return ChangeMessage(f"{facts.what}: {noise}", "")
    return ChangeMessage(f"{facts.what}: {noise} at constant price", "only the price changed")


def _change_lines(change: PeriodChange) -> Iterator[str]:
    message = _message(change, None)
    yield one_line(message.headline)
    if message.reason:
        yield one_line(f"  {message.reason}")
    unit = f"{change.currency} per {change.unit}" if change.currency else change.unit
    rows = [
        ("  level", "change", unit),
        ("  before", "", _value(change.before, change)),
        (
            "  after",
            f"{(change.after / change.before - 1) * 100:+z.1f} %",
            _value(change.after, change),
        ),
    ]
    for part in change.parts:
        effect = f"{math.expm1(part.log_effect) * 100:+z.1f} %"
        sign = "+" if part.amount >= 0 else ""
        rows.append((f"    {part.name}", effect, f"{sign}{_value(part.amount, change)}"))
    yield from table_lines(rows)


def _value(value: float, change: PeriodChange) -> str:
    return money(value, change.currency) if change.currency else significant(value)


def _document(found: Sequence[ExplainedSeries], events: Sequence[Point]) -> dict[str, Any]:
    return {
        "series": [_series(series) for series in found],
        "events": [_event(row) for row in events],
    }


def _series(series: ExplainedSeries) -> dict[str, Any]:
    tags = {name: series.tags.get(name) for name in ("device", "probe", "service")}
    change = series.change
    return {
        **tags,
        "basis": series.basis,
        **{
            name: {"since_ns": span.start_ns, "until_ns": span.end_ns}
            for name, span in zip(("before", "after"), series.periods, strict=True)
        },
        "problem": series.problem or None,
        "change": None if change is None else _change(change),
    }


def _change(change: PeriodChange) -> dict[str, Any]:
    facts, message = change.facts, _message(change, UTC)
    cause = facts.explanation
    paid = facts.money if cause.noise is None else None
    return {
        "headline": message.headline,
        "reason": message.reason,
        "change_pct": facts.change_pct,
        "before": change.before,
        "after": change.after,
        "unit": change.unit,
        "currency": change.currency or None,
        "change_per_month": None if paid is None else paid.per_month,
        "rate_per_s": None if paid is None else paid.rate_per_s,
        "parts": [
            {
                "name": part.name,
                "change_pct": math.expm1(part.log_effect) * 100,
                "amount": part.amount,
            }
            for part in change.parts
        ],
        "noise_pct": None if cause.noise is None else cause.noise * 100,
        "cause": cause.name,
        "explained": _share(cause.explained),
        "causes": [_cause(one) for one in cause.causes],
        "action": facts.todo,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "name": cause.name,
        "text": cause.text,
        "share": _share(cause.share),
        "coincides": cause.coincides,
        "method": cause.method or None,
    }


def _share(share: Share | None) -> dict[str, float] | None:
    if share is None:
        return None
    return {"mean_share": share.mean, "low_share": share.low, "high_share": share.high}


def _event(row: Point) -> dict[str, Any]:
    tags = {name: row.tags.get(name) for name in ("kind", "device", "probe", "service")}
    texts = {name: row.fields.get(name) for name in ("title", "detail", "before", "after", "cause")}
    return {"time_ns": row.time_ns, **tags, **texts}
