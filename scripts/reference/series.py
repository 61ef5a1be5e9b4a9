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

from scripts.reference.markdown import MADE, code, table
from scripts.reference.series_words import FIELDS, MEASUREMENTS, TAGS, Words

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
_NO_WORDS = Words("", {})


def render() -> str:
    """Return the page."""
    lines = [MADE, _HEAD]
    for name, measurement in SCHEMA.items():
        words = MEASUREMENTS.get(name, _NO_WORDS)
        tags = [[code(tag), tag_words(name, tag)] for tag in measurement.tags]
        fields = [
            [code(field), _KINDS[kind], field_words(name, field)]
            for field, kind in measurement.fields.items()
        ]
        lines += [f"## {code(name)}", "", words.about, ""]
        lines += [table(["tag", "meaning"], tags), ""]
        lines += [table(["field", "type", "meaning"], fields), ""]
    lines += [_COUNTERS, _counters()]
    return "\n".join(lines).rstrip() + "\n"


def _counters() -> str:
    counters = [
        [code(f"{PREFIX}{counter.name}_total"), code(measurement), counter.help]
        for measurement, found in COUNTERS.items()
        for counter in found
    ]
    histogram = [code(f"{PREFIX}{RUN_LATENCY}"), code("probe"), f"Histogram: {RUN_LATENCY_HELP}"]
    return table(["counter", "rows of", "meaning"], [*counters, histogram])


def tag_words(measurement: str, tag: str) -> str:
    """Return the description of a tag; empty if there is none."""
    return MEASUREMENTS.get(measurement, _NO_WORDS).tags.get(tag, TAGS.get(tag, ""))


def field_words(measurement: str, field: str) -> str:
    """Return the description of a field; empty if there is none."""
    return MEASUREMENTS.get(measurement, _NO_WORDS).fields.get(field, FIELDS.get(field, ""))


def without_words() -> list[str]:
    """Return measurements, tags and fields of the schema without a description."""
    missing = [name for name in SCHEMA if not MEASUREMENTS.get(name, _NO_WORDS).about]
    for name, measurement in SCHEMA.items():
        missing += [f"{name}: tag {tag}" for tag in measurement.tags if not tag_words(name, tag)]
        missing += [
            f"{name}: field {field}" for field in measurement.fields if not field_words(name, field)
        ]
    return missing


def without_meaning() -> list[str]:
    """Return descriptions of names that the schema does not contain."""
    gone = [name for name in MEASUREMENTS if name not in SCHEMA]
    for name, words in MEASUREMENTS.items():
        known = SCHEMA.get(name, Measurement((), {}))
        gone += [f"{name}: tag {tag}" for tag in words.tags if tag not in known.tags]
        gone += [f"{name}: field {field}" for field in words.fields if field not in known.fields]
    return gone
