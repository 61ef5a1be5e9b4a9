"""`costprobe trend`: a field of the series over time, as a table and a plot."""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.money import common_scale, is_amount, is_each, money, per_words
from costprobe.core.outside import csv_cell, nearest
from costprobe.core.periods import HOUR_NS, TimeSpan, iso
from costprobe.core.schema import (
    ASSUMED,
    MEASURES,
    SCHEMA,
    SERVING_RATIOS,
    SERVING_SUMS,
    part_words,
)
from costprobe.core.units import counted, significant
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import (
    FIELDS,
    STORED_DEVICES,
    STORED_PROBES,
    STORED_SERVICES,
    check_names,
)
from costprobe.ui.cli.support.option_types import LABEL, since_option
from costprobe.ui.cli.support.output import echo, echo_coloured, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, nothing_since, reader_of
from costprobe.ui.cli.views.plots import series_names, trend_plots
from costprobe.ui.text import local
from costprobe.unit_costs.change import change_of, compared_spans
from costprobe.unit_costs.now import ContinuedSeries, TagChange, continued_series, identity_of

# A series with more rows is read by the hour, for a response within some tenths of a second.
ROWS_MAX = 10_000
# Changes of plan and labels that are printed, the newest.
CHANGES_MAX = 5
CHANGED_MAX = 3


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe trend  # cost per inference of the last 24 h",
        "costprobe trend --field latency_p90_ms --since 7d --probe ranker  # latency of one probe",
    ),
)
@since_option("24h")
@click.option(
    "--field",
    default="cost_per_inference",
    show_default=True,
    shell_complete=FIELDS,
    help="A numeric field of the series, such as latency_p50_ms or device.power_w.",
)
@click.option("--device", shell_complete=STORED_DEVICES, help="Only this device.")
@click.option("--probe", shell_complete=STORED_PROBES, help="Only this probe.")
@click.option("--service", shell_complete=STORED_SERVICES, help="Only this service.")
@LABEL
@click.option("--plot/--no-plot", default=True, help="Plot the series.")
@click.option("--json", "as_json", is_flag=True, help="Print every value as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every value as CSV.")
@click.pass_obj
def command(
    config: str | None,
    /,
    *,
    since_ns: int,
    field: str,
    labels: Sequence[tuple[str, str]],
    plot: bool,
    as_json: bool,
    as_csv: bool,
    **selected: str | None,
) -> None:
    """Show a numeric field over time: one row per series, and a plot."""
    measurement, field = _measurement_and_field(field)
    tags = {**{name: value for name, value in selected.items() if value}, **dict(labels)}
    now_ns = time.time_ns()
    settings = Settings(config)
    with reader_of(settings) as reader:
        wanted = {**selected, **dict(labels), "basis": None}
        check_names(reader, settings, wanted)
        all_series = reader.values(
            measurement,
            field,
            since_ns,
            now_ns,
            tags or None,
            most=None if as_json or as_csv else ROWS_MAX,
        )
        of_service = reader.series("cost", tags) if "service" in tags and not all_series else ()
        part = next((words for one in of_service if (words := part_words(one.tags))), "")
        found = continued_series(all_series)
        shown = [one.series for one in found]
        # The newest windows are stored some minutes later: spans end with the last one.
        until_ns = max((series.ends[-1].end_ns for series in all_series), default=now_ns)
        spans = compared_spans(since_ns, until_ns)
        changes = [
            _served_change(
                reader, measurement, field, {**dict(identity_of(series.tags)), **tags}, spans
            )
            if _is_served(measurement, field, series)
            else _change_pct(series)
            for series in shown
        ]
    if as_json:
        echo_json(_document(measurement, field, all_series))
    elif as_csv:
        _write_csv(field, all_series)
    elif not all_series:
        if part:
            raise click.ClickException(f"no {field}: {tags['service']} is {part}")
        raise nothing_since(field, since_ns)
    else:
        echo_lines([*trend_table(measurement, field, shown, changes), *_continued(found)])
        if any(series.tags.get("plan") == ASSUMED for series in shown):
            echo("the price is assumed; set [[price]]")
        if any(_is_served(measurement, field, series) for series in shown):
            echo(_compared(spans))
        if any(series.is_hourly for series in shown):
            echo("hours, evenly spaced; median, min and max are of these; --json has every value")
        for words, group in comparable(shown).items() if plot else ():
            scale = series_scale(measurement, field, group)
            unit = words if is_amount(measurement, field) else group[0].tags.get("basis", "")
            title = f"{field} {unit}".rstrip() + per_scale(scale)
            echo_coloured(trend_plots(title, as_read(group, scale)))


def _measurement_and_field(text: str) -> tuple[str, str]:
    """Return the first measurement that has the field, or the one before the dot."""
    prefix, _, field = text.rpartition(".")
    for name, measurement in SCHEMA.items():
        if prefix in ("", name) and field in measurement.fields:
            if measurement.fields[field] not in (float, int):
                raise bad_input(f"--field {text}: is not numeric; see costprobe export")
            return name, field
    field_names = [field for measurement in SCHEMA.values() for field in measurement.fields]
    suggestion = nearest(field, field_names)
    hint = f"did you mean {suggestion}?" if suggestion else "see docs/reference/series.md"
    raise bad_input(f"--field {text}: unknown field; {hint}")


def _is_served(measurement: str, field: str, series: SeriesValues) -> bool:
    """Whether a field is a ratio or a total of production, for which a single window is not representative."""
    if measurement == "cost" and series.tags.get("basis") == "serving":
        return field in SERVING_RATIOS or field in SERVING_SUMS
    return measurement == "serving" and field in MEASURES


def _change_pct(series: SeriesValues) -> float | None:
    """Return the change from the first to the last value in percent; None from zero."""
    first, last = series.values[0], series.values[-1]
    return (last / first - 1) * 100 if first else None


def _served_change(
    reader: StoreReader,
    measurement: str,
    field: str,
    tags: Mapping[str, str],
    spans: tuple[TimeSpan, TimeSpan],
) -> float | None:
    """Return the change of production between two spans in percent; None where it is unknown."""
    before, after = spans
    # The row of an hour is stamped at its start.
    rows = [
        row
        for row in reader.points(measurement, before.start_ns - HOUR_NS, after.end_ns + 1, tags)
        if row.tags.get("served_model") == tags.get("served_model")
    ]
    change = change_of(rows, field, spans)
    return None if change is None else change.pct


def _compared(spans: tuple[TimeSpan, TimeSpan]) -> str:
    before, after = spans
    return (
        f"change of services: {local(after.start_ns)} to {local(after.end_ns)} against"
        f" {local(before.start_ns)} to {local(before.end_ns)}, sums over each; why: costprobe explain"
    )


def _continued(all_series: Sequence[ContinuedSeries]) -> list[str]:
    """Return a line for each of the newest changes of plan or label within series."""
    names = series_names([one.series.tags for one in all_series])
    changes: dict[TagChange, list[str]] = {}
    for name, one in zip(names, all_series, strict=True):
        for change in one.changes:
            changes.setdefault(change, []).append(name)
    newest = sorted(changes.items(), reverse=True)
    lines = [
        f"{change.tag} {change.before or 'none'} to {change.after or 'none'} since"
        f" {local(change.time_ns)} within {_listed(changed)}"
        for change, changed in newest[:CHANGES_MAX]
    ]
    more = len(newest) - len(lines)
    return [*lines, f"and {counted(more, 'earlier change')} of plan or label"] if more else lines


def _listed(names: Sequence[str]) -> str:
    more = len(names) - CHANGED_MAX
    return ", ".join(names[:CHANGED_MAX]) + (f" and {more} more" if more > 0 else "")


def _document(measurement: str, field: str, all_series: Sequence[SeriesValues]) -> dict[str, Any]:
    return {
        "measurement": measurement,
        "field": field,
        "series": [
            {
                "tags": dict(series.tags),
                "times": [iso(time_ns) for time_ns in series.times_ns],
                "values": list(series.values),
            }
            for series in all_series
        ],
    }


def _write_csv(field: str, all_series: Sequence[SeriesValues]) -> None:
    tags = sorted({tag for series in all_series for tag in series.tags})
    writer = csv.writer(sys.stdout)
    writer.writerow(["time", *map(csv_cell, tags), field])
    for series in all_series:
        tag_values = [csv_cell(series.tags.get(tag, "")) for tag in tags]
        for time_ns, value in zip(series.times_ns, series.values, strict=True):
            writer.writerow([iso(time_ns), *tag_values, value])


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
    return "" if scale is None else f", {per_words(scale)}"


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
