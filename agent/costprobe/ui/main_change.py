"""The largest change that lasts, from the rows of `event` that the alerts are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.periods import WEEK_NS
from costprobe.core.records import Point
from costprobe.ui.overview_records import MainChange

# Below this level in percent a change has reverted.
REVERTED_PCT: Final = 0.5
# The drifts of other series are parts of these.
_OF_COST: Final = frozenset({"cost", "serving_time", "serving_energy", "demand", "mix"})
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
        subjects = {_subject(change) for change in of_cost} - {_subject(largest)}
        return replace(largest, others=len(subjects))
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
        tags=newest.tags,
        others=0,
    )


def _size(change: MainChange) -> tuple[float, float]:
    return abs(change.cost_per_month or 0.0), abs(change.change_pct or 0.0)


def _subject(change: MainChange) -> tuple[str, ...]:
    return tuple(change.tags.get(tag, "") for tag in _SERIES[:-1])
