"""Aggregation of rows of a series: sums of totals, means of readings with their range."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from costprobe.core.bounded import bounded_json
from costprobe.core.records import FieldValue
from costprobe.core.serving_ratios import SERVING_RATIOS, SERVING_SUMS
from costprobe.core.serving_words import Measure

Kind = Literal["sum", "mean", "median", "max", "any", "all", "last"]

# Significant digits of readings: sensors are accurate to percents, and rows take half the space.
_DIGITS: Final = 7
# Significant digits of sums: rounding errors stay negligible over three years.
_SUM_DIGITS: Final = 12
OTHER_LAYOUT: Final = "an aggregated row has another number of cells than its layout"

_KINDS: Final[Mapping[str, Mapping[Kind, frozenset[str]]]] = {
    "device": {
        # Totals of the interval of each row.
        "sum": frozenset(
            {
                "energy_j",
                "dram_energy_j",
                "cost",
                "carbon_g",
                "carbon_energy_j",
                "throttle_power_s",
                "throttle_thermal_s",
            }
        ),
        "max": frozenset({"power_max_w", "processes"}),
        # Counters since boot, and settings.
        "last": frozenset({"ecc_uncorrected", "mem_total_bytes", "power_limit_w"}),
    },
    "probe": {
        # Tokens are means of a request here.
        "sum": frozenset({"samples", "outliers", "requests", "errors"}),
        "max": frozenset({"temp_max_c"}),
        "last": frozenset({"ecc_uncorrected", "threads", "power_limit_w"}),
    },
    "cost": {
        "sum": frozenset({*SERVING_SUMS, "window_s"}),
        # These are rolling windows already.
        "last": frozenset(
            f"rolling_{window}{suffix}"
            for window in ("1h", "24h", "7d")
            for suffix in ("", "_iqr", "_coverage")
        ),
    },
    "serving": {
        "sum": frozenset({*get_args(Measure), "window_s", "restarts", "readings"}),
        "mean": frozenset({"busy_share"}),
        "all": frozenset({"complete"}),
    },
    "budget": {
        # Status of a budget period.
        "last": frozenset(
            {
                "amount",
                "spent",
                "forecast",
                "forecast_low",
                "forecast_high",
                "coverage",
                "elapsed_share",
                "period_start_ns",
                "period_end_ns",
            }
        ),
    },
    "software": {"sum": frozenset({"probe_runs"})},
    "allocation": {"sum": frozenset({"cost", "cost_hardware", "cost_energy"})},
    "tenant": {"sum": frozenset({"cost", "tokens_in", "tokens_out", "requests", "energy_j"})},
    "agent": {
        "last": frozenset(
            {"cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"}
        ),
    },
}
# A few samples an hour with possible outliers: the median is robust.
SAMPLED: Final = frozenset({"probe", "cost", "serving", "allocation", "tenant"})

# Totals that are summed by the hour for reports: `StoreReader.hourly_sums`.
SUMMED: Final[Mapping[str, Sequence[str]]] = {
    "device": ("cost", "energy_j", "carbon_g"),
    "allocation": ("cost",),
    "tenant": ("cost",),
}


class Cell(NamedTuple):
    """Aggregate of one field in a period.

    Attributes:
        value: Sum, mean, median, maximum or newest value, by the kind of the field.
        rows: Rows that had the field.
        low: Minimum, if the value is a mean or a median; else None.
        high: Maximum, likewise.
    """

    value: FieldValue
    rows: int
    low: float | int | None = None
    high: float | int | None = None


Cells = Mapping[str, Cell]


def kind_of(measurement: str, field: str, value: FieldValue) -> Kind:
    """Return how values of a field are aggregated.

    Args:
        measurement: Name of the series family.
        field: Name of the field.
        value: One of its values, for its type.
    """
    if isinstance(value, str):
        return "last"
    for kind, fields in _KINDS.get(measurement, {}).items():
        if field in fields:
            return kind
    if isinstance(value, bool):
        return "any"
    return "median" if measurement in SAMPLED else "mean"


def aggregate(measurement: str, rows: Sequence[Mapping[str, FieldValue]]) -> dict[str, Cell]:
    """Aggregate rows.

    A field that changed its type is aggregated by its last type; a sum beyond the range of a float
    is omitted.

    Args:
        measurement: Name of the series family.
        rows: Fields of each row, oldest first.
    """
    columns: dict[str, list[FieldValue]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    aggregated = {
        name: _aggregate_column(measurement, name, column) for name, column in columns.items()
    }
    return _with_ratios(measurement, aggregated)


def merge(measurement: str, older: Cells, newer: Cells) -> dict[str, Cell]:
    """Merge the aggregates of two periods; exact except for medians, which are averaged.

    Args:
        measurement: Name of the series family.
        older: Aggregates of the earlier period.
        newer: Aggregates of the later period.
    """
    merged = {**older, **newer}
    for name in older.keys() & newer.keys():
        merged[name] = _merged(measurement, name, older[name], newer[name])
    return _with_ratios(measurement, merged)


def encoded(cells: Cells, names: Sequence[str], rows: int) -> str:
    """Encode cells in the order of names, without counts equal to the number of rows."""
    return json.dumps([_packed(cells[name], rows) for name in names], separators=(",", ":"))


def decoded(text: str, names: Sequence[str], rows: int) -> dict[str, Cell]:
    """Return the cells that `encoded` wrote."""
    packed: list[Any] = bounded_json(text)
    if len(packed) != len(names):
        raise ValueError(OTHER_LAYOUT)
    return {
        name: _unpacked(cell, rows) if isinstance(cell, list) else Cell(cell, rows)
        for name, cell in zip(names, packed, strict=True)
    }


def number_in(cell: FieldValue | list[Any], rows: int) -> tuple[float, int] | None:
    """Return the number in a cell and the rows that had it; None for a text or a boolean.

    Args:
        cell: One of those that `encoded` wrote.
        rows: Number of aggregated rows.
    """
    if isinstance(cell, list):
        cell, rows, *_ = _unpacked(cell, rows)
    return None if isinstance(cell, bool | str) else (float(cell), rows)


def _packed(cell: Cell, rows: int) -> object:
    counted = [] if cell.rows == rows else [cell.rows]
    if cell.low is None or cell.low == cell.high == cell.value:
        return [cell.value, *counted] if counted else cell.value
    return [cell.value, cell.low, cell.high, *counted]


def _unpacked(packed: list[Any], rows: int) -> Cell:
    if len(packed) < 3:  # noqa: PLR2004 - a value and its count
        return Cell(packed[0], packed[1])
    value, low, high, *counted = packed
    return Cell(value, counted[0] if counted else rows, low, high)


def _aggregate_column(measurement: str, name: str, column: list[FieldValue]) -> Cell:
    kind = kind_of(measurement, name, column[-1])
    if kind == "last":
        return Cell(column[-1], len(column))
    if isinstance(column[-1], bool):
        are = [value is True for value in column]
        return Cell(all(are) if kind == "all" else any(are), len(column))
    numbers = [v for v in column if isinstance(v, int | float) and not isinstance(v, bool)]
    count = len(numbers)
    if kind == "max":
        return Cell(max(numbers), count)
    if kind == "sum":
        return Cell(_short(sum(numbers), _SUM_DIGITS), count)
    middle = _median(numbers) if kind == "median" else sum(number / count for number in numbers)
    return _spread(middle, count, min(numbers), max(numbers))


def _merged(measurement: str, name: str, older: Cell, newer: Cell) -> Cell:
    kind = kind_of(measurement, name, newer.value)
    count = older.rows + newer.rows
    if isinstance(newer.value, bool):
        both = (older.value is True, newer.value is True)
        return Cell(all(both) if kind == "all" else any(both), count)
    before, after = older.value, newer.value
    if kind == "last" or isinstance(before, str | bool) or isinstance(after, str | bool):
        return Cell(after, count)
    if kind == "max":
        return Cell(max(before, after), count)
    if kind == "sum":
        return Cell(_short(before + after, _SUM_DIGITS), count)
    middle = before * (older.rows / count) + after * (newer.rows / count)
    low = min(before if older.low is None else older.low, after if newer.low is None else newer.low)
    high = max(
        before if older.high is None else older.high, after if newer.high is None else newer.high
    )
    return _spread(middle, count, low, high)


def _median(numbers: Sequence[float]) -> float:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2 + ordered[middle] / 2


def _spread(middle: float, count: int, low: float, high: float) -> Cell:
    if isinstance(low, int) and isinstance(high, int):
        # A database has fixed the type of the field: its mean is an integer too.
        return Cell(round(middle), count, low, high)
    return Cell(_short(middle, _DIGITS), count, _short(low, _DIGITS), _short(high, _DIGITS))


def _with_ratios(measurement: str, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells that a file can hold, with ratios of production as ratios of sums."""
    finite = {name: cell for name, cell in cells.items() if _is_finite(cell)}
    if measurement != "cost" or "cost_total" not in finite:
        return finite
    sums = {name: float(finite[name].value) for name in SERVING_SUMS if name in finite}
    for name, ratio in SERVING_RATIOS.items():
        value = ratio.of(sums)
        # Sums over different windows, such as those with a known energy, make no ratio.
        is_whole = value is not None and finite[ratio.over].rows == finite[ratio.per].rows
        if name in finite and value is not None and is_whole:
            finite[name] = finite[name]._replace(value=_short(value, _DIGITS))
    return finite


def _short(value: float, digits: int) -> float:
    return value if isinstance(value, int) else float(f"{value:.{digits}g}")


def _is_finite(cell: Cell) -> bool:
    return not isinstance(cell.value, float) or math.isfinite(cell.value)
