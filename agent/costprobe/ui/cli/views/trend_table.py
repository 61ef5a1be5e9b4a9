"""The table of `costprobe trend`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from costprobe.adapters.storage.history import SeriesValues
from costprobe.core.money_text import common_scale, is_amount, is_each, money, scale_words
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.views.series_names import series_names


def series_scale(measurement: str, field: str, all_series: Sequence[SeriesValues]) -> int | None:
    """Return the number of inferences that a cost of one is written for; None for other fields."""
    if not is_each(measurement, field):
        return None
    return common_scale(series.values[0] for series in all_series)


def as_read(all_series: Sequence[SeriesValues], scale: int | None) -> list[SeriesValues]:
    """Return the series as people read them: the cost of so many inferences."""
    if scale is None:
        return list(all_series)
    return [
        replace(series, values=[value * scale for value in series.values]) for series in all_series
    ]


def per_scale(scale: int | None) -> str:
    """Return what the values of `as_read` are divided by: ", per 1,000"; empty for other fields."""
    return "" if scale is None else f", per {scale_words(scale)}"


def trend_table(
    measurement: str,
    field: str,
    all_series: Sequence[SeriesValues],
    changes: Sequence[float | None],
) -> list[str]:
    """Return the lines of a table: a row for each series.

    Args:
        measurement: Name of the series family.
        field: Name of the field.
        all_series: At least one; each has at least one value.
        changes: Change of each series in percent; None where it is unknown.
    """
    scale = series_scale(measurement, field, all_series)
    title = f"series{per_scale(scale)}"
    is_money = is_amount(measurement, field)
    rows: list[tuple[str, ...]] = [
        (title, "samples", "first", "last", "change", "median", "min", "max")
    ]
    names = series_names([series.tags for series in all_series])
    shown = as_read(all_series, scale)
    for name, series, change_pct in zip(names, shown, changes, strict=True):
        values = list(series.values)
        change = "-" if change_pct is None else f"{change_pct:+.1f} %"
        currency = series.tags.get("currency", "")
        first, last, median, least, most = (
            money(value, currency) if is_money else f"{value:,.4g}"
            for value in (
                values[0],
                values[-1],
                statistics.median(values),
                min(values),
                max(values),
            )
        )
        rows.append((name, str(len(values)), first, last, change, median, least, most))
    return table_lines(rows)
