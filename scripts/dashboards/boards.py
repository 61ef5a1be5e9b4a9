"""The dashboards, from boards.toml: variables, panels and their queries."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from costprobe.core.schema import SERVING_RATIOS
from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards import agents, budgets, changes, groups, parts, tables, unit_costs
from scripts.dashboards.queries import PER_PANEL, Condition, Known, Query, Tag

_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_TEXTS: Mapping[str, str] = _FILE.pop("texts")
BOARDS: Mapping[str, Any] = _FILE
_CALLED = {
    module.__name__.rpartition(".")[2]: module
    for module in (agents, budgets, changes, groups, parts, unit_costs)
}
_BUILT: Mapping[str, Any] = {"figure": parts.figure, "graph": parts.graph, "list": tables.listing}


def build(name: str) -> dashboard.Dashboard:
    """Return a dashboard.

    Args:
        name: Its table in the file.
    """
    found = BOARDS[name]
    variables = [parts.choice(tag.rstrip("!"), several=tag[-1] != "!") for tag in found["choose"]]
    amounts = [parts.amount(*one) for one in found.get("amounts", ())]
    board = parts.page(name, found["title"], found["about"], [*variables, *amounts])
    if "time" in found:
        board.time(found["time"], "now")
    for panel in found["panels"]:
        if "row" in panel:
            board.with_row(dashboard.Row(panel["row"]))
        else:
            board.with_panel(_panel(panel, found.get("queries", {})))
    return board


def _panel(panel: Mapping[str, Any], queries: Mapping[str, Any]) -> Any:  # noqa: ANN401 - panels have no common type
    given = dict(panel)
    if "call" in given:
        return _called(given.pop("call"))(**given)
    kind = next(one for one in _BUILT if one in given)
    title, sort, time = given.pop(kind), given.pop("sort", ""), given.pop("time", "")
    is_ascending = given.pop("ascending", False)
    unit = () if kind == "list" else (given.pop("unit", "short"),)
    asked = given.pop("queries", None) or [given.pop("query")]
    if isinstance(steps := given.get("steps"), Mapping):
        given["steps"] = {column: _steps(one) for column, one in steps.items()}
    elif steps:
        given["steps"] = _steps(steps)
    built: Any = _BUILT[kind](title, *unit, *(_query(one, queries) for one in asked), **given)
    if time:
        built = tables.with_time(built, time)
    return tables.sorted_by(built, sort, is_descending=not is_ascending) if sort else built


def _called(name: str) -> Any:  # noqa: ANN401 - a function of any form
    module, _, function = name.partition(".")
    return getattr(_CALLED[module], function)


def _steps(given: list[Any]) -> parts.Steps:
    """Return thresholds; of two numbers orange and red."""
    return tuple(map(tuple, given)) if isinstance(given[0], list) else parts.bounds(*given)


def _query(given: Mapping[str, Any], queries: Mapping[str, Any]) -> Query:
    found = {**queries.get(given.get("like", ""), {}), **given}
    if "call" in found:
        query: Query = _called(found["call"])(*found.get("args", ()))
        return query
    if "whole" in found:
        return Query.written(_written(found["whole"]), _promql(found))
    by = tuple(found.get("by", "").split())
    query = Query(
        _select(found),
        found["source"],
        over=tuple(found.get("over", "host").split()),
        where=tuple(map(_condition, found.get("where", ()))),
        by=by,
        every=found.get("every", PER_PANEL) or None,
        alias="" if "ratio" in found else found.get("alias", ""),
        since=found.get("since", ""),
        is_rows=found.get("rows", False),
    )
    if "ratio" in found:
        query = query.of('"ratio"', *by, where='"count" > 0', alias=found["alias"])
    if "of" in found:
        outer = dict(found["of"])
        query = query.of(outer.pop("select"), *outer.pop("by", "").split(), **outer)
    return replace(query, prometheus=_promql(found)) if "prometheus" in found else query


def _promql(found: Mapping[str, Any]) -> dict[str, str]:
    return {column: _written(text) for column, text in found["prometheus"].items()}


def _select(found: Mapping[str, Any]) -> str:
    """Return the selected expressions.

    A mean of the ratios of windows would weigh an idle window as much as a busy one, and one of an interval in
    which nothing was counted divides by 0.
    """
    select = found.get("select", "")
    if name := found.get("ratio"):
        count = _sum_of(SERVING_RATIOS[name].per)
        select = f'<{name}>{found.get("scale", "")} AS "ratio", {count} AS "count"'
    return _written(select)


def _written(text: str) -> str:
    """Return a text with others of the file, and ratios of sums of production, in place of their `<name>`."""
    return re.sub(r"<(\w+)>", lambda one: _named(one[1]), text)


def _named(name: str) -> str:
    return _written(_TEXTS[name]) if name in _TEXTS else SERVING_RATIOS[name].written(_sum_of)


def _sum_of(field: str) -> str:
    return f'sum("{field}")'


def _condition(text: str) -> Condition:
    """Return a condition: `TAG = VALUE` with one of three signs, `has FIELD`, or InfluxQL on a field."""
    if text.startswith('"'):
        return text
    name, sign, value = [*text.split(" ", 2), ""][:3]
    return Known(sign) if name == "has" else Tag(name, value, sign)
