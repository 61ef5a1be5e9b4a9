"""Panels of the cost of each model and service now, against a day and a week before."""

from __future__ import annotations

from dataclasses import replace

from costprobe.core.schema import SERVING_RATIOS
from grafana_foundation_sdk.builders import stat, table

from scripts.dashboards.parts import sparklines
from scripts.dashboards.promql import promql
from scripts.dashboards.queries import PER_PANEL, Query, Tag
from scripts.dashboards.tables import joined, listing, sorted_by

PRICED = ("host", "currency")
_FILTER = '"host" =~ /^$host$/ AND "currency" =~ /^$currency$/'
_LABELS = 'host=~"$host",currency=~"$currency"'
_AGES = {"now": "0s", "day": "24h", "week": "168h"}
# The row that a day or a week ago was the newest may be this much older: probes may run rarely.
_LATE = "6h"
_PROBED = ("host", "device", "probe")


def _within(age: str, length: str) -> str:
    if age == "0s":
        return f"time > now() - {length}"
    return f"time > now() - {age} - {length} AND time <= now() - {age}"


def _change(now: str, before: str) -> str:
    return f"100 * ({now} / {before} - 1)"


# ---- probes


def _level(age: str, over: str = "quantile by (probe) (0.5, {})") -> str:
    """Return PromQL over the devices' medians of an hour."""
    offset = "" if age == "0s" else f" offset {age}"
    labels = f'{{{_LABELS},basis="probe"}}[{_LATE}]{offset}'
    level = f"max by ({', '.join(_PROBED)}) (last_over_time(costprobe_cost_rolling_1h{labels}))"
    return over.replace("{}", level)


def models(span: int) -> table.Panel:
    """Return the table of models that probes measure: one row for each, the median of its devices."""
    by = ", ".join(f'"{tag}"' for tag in _PROBED)
    levels = ", ".join(
        f'(SELECT last("rolling_1h") AS "{name}" FROM "cost" WHERE {_FILTER}'  # noqa: S608 - constant text of this repository
        f" AND \"basis\" = 'probe' AND {_within(age, _LATE)} GROUP BY {by})"
        for name, age in _AGES.items()
    )
    columns = {
        "per 1,000": 'median("now") * 1000',
        "24 h": _change('median("now")', 'median("day")'),
        "7 d": _change('median("now")', 'median("week")'),
        "spread": '100 * (max("now") - min("now")) / median("now")',
        "devices": 'count("now")',
    }
    selected = ", ".join(f'{text} AS "{name}"' for name, text in columns.items())
    now, day, week = map(_level, _AGES.values())
    run = Query(
        'last("latency_p50_ms") AS "latency", last("energy_per_inference_j") AS "energy"',
        "probe",
        by=_PROBED,
        every=None,
        since=_LATE,
    )
    latency, energy = (
        column.text.replace("max by", "quantile by (probe) (0.5, max by", 1) + ")"
        for column in promql(run)
    )
    highest, lowest, count = (
        _level("0s", f"{name} by (probe) ({{}})") for name in ("max", "min", "count")
    )
    promql_columns = {
        "per 1,000": f"{now} * 1000",
        "24 h": _change(now, day),
        "7 d": _change(now, week),
        "spread": f"100 * ({highest} - {lowest}) / {now}",
        "devices": count,
        "latency": latency,
        "energy": energy,
    }
    panel = listing(
        "Models: cost per 1,000 inferences now ($currency)",
        Query.written(f'SELECT {selected} FROM {levels} GROUP BY "probe"', promql_columns),  # noqa: S608 - as above
        replace(
            run.of('median("latency") AS "latency", median("energy") AS "energy"', "probe"),
            prometheus={},
        ),
        units={**_CHANGED, "spread": "percent", "latency": "ms", "energy": "joule"},
        steps=_WORSE,
        about="Median of the devices of the newest hour's medians, the same a day and a week before; spread:"
        " largest minus smallest, as a share of the median.",
        span=span,
    )
    return sorted_by(joined(panel, "probe", ("probe", *columns, "latency", "energy")), "24 h")


def model_trends(span: int) -> stat.Panel:
    """Return the curve of each model's cost."""
    cost = Query(
        'median("rolling_1h") * 1000',
        "cost",
        over=PRICED,
        where=(Tag("basis", "probe"),),
        by=("probe",),
        every=PER_PANEL,
        alias="$tag_probe",
    )
    return sparklines("Models: trend of the cost per 1,000 inferences ($currency)", cost, span=span)


# ---- services

_RATIOS = {
    "per million output tokens": ("cost_per_million_tokens_out", ""),
    "per 1,000 requests": ("cost_per_request", "1000 * "),
}
_EACH = ("service", "served_model")
# A part of a group has a cost without counts; hosts may name a part like a complete replica.
_SERVED = (Tag("basis", "serving"), Tag("service_role", "|all", "=~"))
_CHANGED = {"24 h": "percent", "7 d": "percent"}
_WORSE = {"24 h": ((5.0, "orange"), (20.0, "red")), "7 d": ((5.0, "orange"), (20.0, "red"))}


def _sum_of(field: str) -> str:
    return f'sum("{field}")'


def _ratio_of(title: str, name: str, age: str) -> str:
    """Return InfluxQL of a column's ratio in an hour in which something was counted: it divides by 0 as 0."""
    field, scale = _RATIOS[title]
    ratio, by = SERVING_RATIOS[field], ", ".join(f'"{tag}"' for tag in _EACH)
    return (
        f'(SELECT "ratio" AS "{name}" FROM (SELECT {scale}{ratio.written(_sum_of)} AS "ratio",'  # noqa: S608 - constant text of this repository
        f' {_sum_of(ratio.per)} AS "count" FROM "cost" WHERE {_FILTER}'
        f' AND {" AND ".join(tag.influxql for tag in _SERVED)} AND {_within(age, "1h")} GROUP BY {by}) WHERE "count" > 0 GROUP BY {by})'
    )


def _promql_ratio(field: str, age: str) -> str:
    """Return PromQL of the ratio of an hour, of services and of their models."""
    offset = "" if age == "0s" else f" offset {age}"
    query = Query(
        SERVING_RATIOS[field].written(_sum_of),
        "cost",
        over=PRICED,
        where=_SERVED,
        by=_EACH,
        every=None,
        since="1h",
    )
    (column,) = promql(query)
    return f"({column.text.replace('[1h]', f'[1h]{offset}')})"


def services(span: int) -> table.Panel:
    """Return the table of services and their models, ratios of the sums of the last hour."""
    by = ", ".join(f'"{tag}"' for tag in _EACH)
    sources: list[str] = []
    columns, promql_columns, units, steps = {}, {}, {}, {}
    for title, (field, scale) in _RATIOS.items():
        kind = title.split()[-1]
        sources += [_ratio_of(title, f"{kind} {name}", age) for name, age in _AGES.items()]
        now, *earlier = (f'last("{kind} {name}")' for name in _AGES)
        columns[title] = now
        promql_columns[title] = f"{scale}{_promql_ratio(field, '0s')} > 0"
        for words, age, before in zip(_CHANGED, ("day", "week"), earlier, strict=True):
            name = f"{kind}: {words}"
            columns[name] = _change(now, before)
            promql_columns[name] = _change(
                _promql_ratio(field, "0s"), _promql_ratio(field, _AGES[age])
            )
            units[name], steps[name] = "percent", _WORSE["24 h"]
    selected = ", ".join(f'{text} AS "{name}"' for name, text in columns.items())
    return listing(
        "Services: cost now ($currency)",
        Query.written(f"SELECT {selected} FROM {', '.join(sources)} GROUP BY {by}", promql_columns),  # noqa: S608 - as above
        units=units,
        steps=steps,
        hide=("Time",),
        about="Whole cost of the last hour, idle time included, divided by what it produced; against the same"
        " hour a day and a week before. A row without a model is the whole service.",
        span=span,
    )


def service_trends(span: int) -> stat.Panel:
    """Return the curve of each service's cost per request."""
    ratio = SERVING_RATIOS["cost_per_request"]
    sums = Query(
        f'{ratio.written(_sum_of)} * 1000 AS "ratio", {_sum_of(ratio.per)} AS "count"',
        "cost",
        over=PRICED,
        where=_SERVED,
        by=_EACH,
    )
    name = "$tag_service $tag_served_model"
    trend = sums.of('"ratio"', *_EACH, where='"count" > 0', alias=name)
    return sparklines(
        "Services: trend of the cost per 1,000 requests ($currency)", trend, span=span
    )
