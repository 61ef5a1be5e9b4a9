"""The table of `costprobe trend`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from costprobe.adapters.store.read import SeriesValues
from costprobe.core.money import common_scale, is_amount, is_each, money, scale_words
from costprobe.core.units import significant
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.views.series_names import series_names


def comparable(all_series: Sequence[SeriesValues]) -> dict[str, list[SeriesValues]]:
    """Group the series by basis and currency, which cannot share an axis."""
    groups: dict[str, list[SeriesValues]] = {}
    for series in all_series:
        groups.setdefault(_basis_of(series), []).append(series)
    return groups


def _basis_of(series: SeriesValues) -> str:
    return " ".join(series.tags[tag] for tag in ("basis", "currency") if tag in series.tags)


def series_scale(measurement: str, field: str, all_series: Sequence[SeriesValues]) -> int | None:
    """Return the number of inferences that a cost of one is written for; None for other fields.

    Args:
        measurement: Name of the series family.
        field: Name of the field.
        all_series: Those of a group of `comparable`.
    """
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
    """Return the lines of a table for each scale: a row for each series.

    Args:
        measurement: Name of the series family.
        field: Name of the field.
        all_series: At least one; each has at least one value.
        changes: Change of each series in percent; None where it is unknown.
    """
    scales = {
        basis: series_scale(measurement, field, group)
        for basis, group in comparable(all_series).items()
    }
    is_money = is_amount(measurement, field)
    figures = ("samples", "first", "last", "change", "median", "min", "max")
    tables: dict[int | None, list[tuple[str, ...]]] = {
        scale: [(f"series{per_scale(scale)}", *figures)] for scale in scales.values()
    }
    names = series_names([series.tags for series in all_series])
    for name, series, change_pct in zip(names, all_series, changes, strict=True):
        scale = scales[_basis_of(series)]
        values = [value * (scale or 1) for value in series.values]
        change = "-" if change_pct is None else f"{change_pct:+z.1f} %"
        currency = series.tags.get("currency", "")
        first, last, median, least, most = (
            money(value, currency) if is_money else significant(value)
            for value in (
                values[0],
                values[-1],
                statistics.median(values),
                min(values),
                max(values),
            )
        )
        row = (name, f"{len(values):,}", first, last, change, median, least, most)
        tables[scale].append(row)
    return [line for rows in tables.values() for line in table_lines(rows)]
