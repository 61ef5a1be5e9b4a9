"""Render the page of the series: every measurement, tag and field of the schema."""

from __future__ import annotations

from costprobe.core.schema import (
    COUNTERS,
    PREFIX,
    RUN_LATENCY,
    RUN_LATENCY_HELP,
    SCHEMA,
    Measurement,
)

from scripts.reference.markdown import MADE, Tables, code, table
from scripts.reference.words import Words

_HEAD = """\
# Series

Every row also has the tag `host`, your labels, and a timestamp in UTC nanoseconds. Tags that do not apply and
fields that are unknown are absent, never zero. A row's identity is its measurement, tags and timestamp, so
sending it twice results in one row.

The names are the same in InfluxDB 1.x, 2.x and 3.x, in VictoriaMetrics, in `costprobe export`, and as
`costprobe_<measurement>_<field>` at `/metrics`. Units are suffixes: `_s`, `_ms`, `_ns`, `_j`,
`_w`, `_bytes`, `_mhz`, `_c` (degrees Celsius), `_pct`, `_g` (grams); money is in the unit of `currency`;
shares are from 0 to 1.
"""
_COUNTERS = """\
## Counters at `/metrics`

Each counter is the sum of a field over all rows since the store was created. Its labels are the row's tags without
`kind`, `uuid`, `plan`, `basis` and `engine`; only money has `currency`. `costprobe_service_*` counts whole services;
where a server serves several models, `costprobe_model_*` counts each of them, with `served_model`.
"""
_KINDS = {float: "float", int: "integer", str: "text", bool: "boolean"}


def render() -> str:
    """Return the page: names of several measurements with the same meaning, then the measurements."""
    words = Words()
    rows = {name: rows_of(name, one, words) for name, one in SCHEMA.items()}
    tables = Tables(
        ("name", "is", "meaning"),
        rows.values(),
        least=2,
        where="[Shared](#names-of-several-measurements)",
    )
    lines = [MADE, _HEAD, "## Names of several measurements", "", tables.shared, ""]
    for name in SCHEMA:
        lines += [f"## {code(name)}", "", words.measurements[name], "", *tables.lines(rows[name])]
    lines += [_COUNTERS, _counters()]
    return "\n".join(lines).rstrip() + "\n"


def rows_of(name: str, measurement: Measurement, words: Words) -> list[list[str]]:
    """Return a row for each tag and field of a measurement: name, kind and meaning."""
    found = [(tag, "tag") for tag in measurement.tags]
    found += [(field, _KINDS[kind]) for field, kind in measurement.fields.items()]
    return [[code(key), kind, words.of((name, key))] for key, kind in found]


def explained(words: Words) -> set[str]:
    """Return the tags and fields that have, somewhere on the page, the meaning of their name."""
    return {
        key
        for name, measurement in SCHEMA.items()
        for key in (*measurement.tags, *measurement.fields)
        if words.of((name, key)) == words.of((key,))
    }


def _counters() -> str:
    counters = [
        [code(f"{PREFIX}{counter.name}_total"), code(measurement), counter.help]
        for measurement, found in COUNTERS.items()
        for counter in found
    ]
    histogram = [code(f"{PREFIX}{RUN_LATENCY}"), code("probe"), f"Histogram: {RUN_LATENCY_HELP}"]
    return table(["counter", "rows of", "meaning"], [*counters, histogram])


def without_words() -> list[str]:
    """Return measurements, tags and fields of the schema without a description."""
    words = Words()
    missing = [name for name in SCHEMA if not words.measurements.get(name)]
    for name, one in SCHEMA.items():
        missing += [f"{name}.{row[0]}" for row in rows_of(name, one, words) if not row[2]]
    return missing
