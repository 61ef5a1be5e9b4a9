"""Rows of the series from a CSV file: an export, or one column for each field."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from datetime import UTC
from pathlib import Path

from costprobe.adapters.store.read import ROLLUP_TAG
from costprobe.core.outside import from_csv_cell
from costprobe.core.periods import parse_date_ns
from costprobe.core.records import FieldValue, Point
from costprobe.core.schema import SCHEMA, make_point
from costprobe.ui.cli.support.place import bad_input

EXPORTED = ["time", "measurement", "tags", "field", "value"]
# A file with only times and values is one series of cost.
BARE = {"value": "cost_reference"}
TAGS = {tag for measurement in SCHEMA.values() for tag in measurement.tags} | {"host"}
# Whole numbers from here on are ns since 1970: as seconds they would lie after the year 33,000.
LEAST_NS = 10**12
MAX_ROWS = 5_000_000


def rows_of_csv(path: Path) -> list[Point]:
    """Return the rows of a file, ordered by time.

    Raises:
        click.ClickException: The file or one of its lines cannot be used; exit code 2.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or ())
            numbered = ((reader.line_num, line) for line in reader)
            read = _exported if header == EXPORTED else _wide
            rows = list(read(path, header, numbered))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise bad_input(f"{path}: cannot be read: {error}") from error
    return sorted(rows, key=lambda row: row.time_ns)


def _exported(
    path: Path, header: list[str], lines: Iterable[tuple[int, Mapping[str, str]]]
) -> Iterable[Point]:
    """Join the lines of an export, with one value each, to rows."""
    del header
    rows: dict[tuple[str, str, str], dict[str, FieldValue]] = {}
    for number, line in lines:
        if len(rows) > MAX_ROWS:
            raise bad_input(f"{path}: more than {MAX_ROWS} rows; split the file")
        measurement, field = line["measurement"], line["field"]
        kind = SCHEMA[measurement].fields.get(field) if measurement in SCHEMA else None
        if kind is None:
            raise bad_input(f"{path}:{number}: no field {measurement}.{field}")
        values = rows.setdefault((line["time"], measurement, line["tags"]), {})
        values[field] = _value(path, number, line["value"], kind)
    for (time, measurement, tags), values in rows.items():
        tags_by_name = dict(
            part.partition("=")[::2] for part in from_csv_cell(tags).split(" ") if part
        )
        # Rows of a minute are close enough to the measurements; between hourly rows all
        # series would count as absent.
        if tags_by_name.pop(ROLLUP_TAG, None) != "1h":
            yield make_point(measurement, tags_by_name, values, _time_ns(path, 0, time))


def _wide(
    path: Path, header: list[str], lines: Iterable[tuple[int, Mapping[str, str]]]
) -> Iterable[Point]:
    """Return rows of a file with a column `time` and one for each field and tag."""
    if "time" not in header:
        raise bad_input(f"{path}:1: no column `time`")
    fields: dict[str, str] = {}
    for column in header:
        if column == "time" or column in TAGS:
            continue
        field = BARE.get(column, column)
        homes = [name for name, series in SCHEMA.items() if field in series.fields]
        if not homes:
            raise bad_input(f"{path}:1: {column!r} is neither a field nor a tag of a series")
        fields[column] = homes[0]
    for number, line in lines:
        time_ns = _time_ns(path, number, line["time"])
        tags = {"device": "csv", "probe": "csv"}
        tags |= {tag: from_csv_cell(line[tag]) for tag in TAGS if line.get(tag)}
        rows: dict[str, dict[str, FieldValue]] = {}
        for column, measurement in fields.items():
            field = BARE.get(column, column)
            if line.get(column):
                kind = SCHEMA[measurement].fields[field]
                value = _value(path, number, line[column], kind)
                rows.setdefault(measurement, {})[field] = value
        for measurement, values in rows.items():
            yield make_point(measurement, tags, values, time_ns)


def _value(path: Path, number: int, text: str, kind: type) -> FieldValue:
    if kind is str:
        return from_csv_cell(text)
    if kind is bool:
        return text.strip().lower() in {"true", "t", "1"}
    try:
        value = float(text)
    except ValueError:
        raise bad_input(f"{path}:{number}: {text!r} is not a number") from None
    if not math.isfinite(value):
        raise bad_input(f"{path}:{number}: {text!r} is not a number")
    return value


def _time_ns(path: Path, number: int, text: str) -> int:
    """Parse seconds or ns since 1970, or ISO 8601 (UTC without a zone), to UTC ns."""
    if text.isdecimal() and LEAST_NS <= int(text[:20]) < 2**63:
        return int(text)
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= seconds * 1e9 < 2**63:
            raise bad_input(f"{path}:{number}: {text!r} is no number of seconds since 1970")
        return round(seconds * 1e9)
    try:
        return parse_date_ns(text, UTC)
    except ValueError as error:
        raise bad_input(f"{path}:{number}: {error}") from None
