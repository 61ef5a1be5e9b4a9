"""Tables of query results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import dashboard as model

from scripts.dashboards.parts import Steps, target, thresholds
from scripts.dashboards.queries import SOURCE, Query

# Texts of a column's values, and their colors.
Words = Mapping[str, tuple[str, str]]


def listing(  # noqa: PLR0913 - each is a property of the panel
    title: str,
    query: Query,
    *more: Query,
    about: str = "",
    units: Mapping[str, str] | None = None,
    steps: Mapping[str, Steps] | None = None,
    words: Mapping[str, Words] | None = None,
    hide: tuple[str, ...] = (),
    span: int = 24,
    height: int = 8,
) -> table.Panel:
    """Return a table of the results of queries.

    Args:
        title: Title of the panel.
        query: The query.
        more: Further queries; `joined` joins their results.
        about: Description shown with the panel.
        units: Units of columns.
        steps: Thresholds by column, which color its text.
        words: Texts by column, in place of its values.
        hide: Columns without information, such as the time of a summary.
        span: Width in 24ths of the page.
        height: Height in rows of the page.
    """
    panel = (
        table.Panel().title(title).datasource(SOURCE).span(span).height(height).show_header(True)
    )
    panel.thresholds(thresholds(()))
    for number, one in enumerate((query, *more)):
        panel.with_target(target(one, number, "table"))
    if about:
        panel.description(about)
    properties: dict[str, list[tuple[str, object]]] = {}
    for name, unit in (units or {}).items():
        properties.setdefault(name, []).append(("unit", unit))
    for name, colored in (steps or {}).items():
        properties.setdefault(name, []).extend(
            [("thresholds", thresholds(colored).build()), _COLORED]
        )
    for name, texts in (words or {}).items():
        properties.setdefault(name, []).extend([("mappings", [_mapped(texts)]), _COLORED])
    for name, board in _LINKED.items():
        if f'"{name}"' in query.text.replace(f'"{name}" =~', ""):
            properties.setdefault(name, []).append(("links", [_link(name, board)]))
    for name in hide:
        properties.setdefault(name, []).append(("custom.hidden", True))
    for name, found in properties.items():
        panel.override_by_name(name, [model.DynamicConfigValue(*one) for one in found])
    return panel


# Dashboards of what a column names.
_LINKED = {"host": "host", "probe": "model", "service": "production"}


def _link(name: str, board: str) -> dict[str, str]:
    chosen = f"var-{name}=${{__value.raw}}&${{datasource:queryparam}}&${{__url_time_range}}"
    return {"title": f"open {name}", "url": f"/d/costprobe-{board}?{chosen}"}


_COLORED = ("custom.cellOptions", {"type": "color-text"})


def _mapped(texts: Words) -> model.ValueMap:
    return model.ValueMap(
        options={
            value: model.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(texts.items())
        }
    )


def joined(
    panel: table.Panel,
    by: str,
    columns: Sequence[str],
    quotients: Mapping[str, tuple[str, str]] | None = None,
) -> table.Panel:
    """Return a table of several queries with one row for each value of a column, without times.

    Args:
        panel: The table.
        by: Column that all results have.
        columns: All columns, in their order.
        quotients: Further columns by name, each one divided by another: InfluxQL cannot divide fields of two
            measurements. Only rows that all results have then: Grafana divides nothing as 0.
    """
    # Grafana names the times of joined results after their measurements: without them no name is ambiguous.
    times: dict[str, Any] = {"exclude": {"names": ["Time"]}}
    join = {"byField": by, "mode": "inner" if quotients else "outer"}
    order = {
        "excludeByName": {},
        "renameByName": {},
        "indexByName": {name: place for place, name in enumerate(columns)},
    }
    divided = [
        {"mode": "binary", "alias": name, "binary": {"left": left, "operator": "/", "right": right}}
        for name, (left, right) in (quotients or {}).items()
    ]
    steps = [("filterFieldsByName", times), ("joinByField", join)]
    steps += [*(("calculateField", one) for one in divided), ("organize", order)]
    for name, options in steps:
        panel.with_transformation(model.DataTransformerConfig(name, options=options))
    return panel


def sorted_by(panel: table.Panel, column: str, *, is_descending: bool = True) -> table.Panel:
    """Return a table with the highest values of a column first, or the lowest."""
    return panel.sort_by([common.TableSortByFieldState().display_name(column).desc(is_descending)])


def with_time(panel: table.Panel, name: str) -> table.Panel:
    """Return a table whose rows' time has another name."""
    options = {"excludeByName": {}, "renameByName": {"Time": name}, "indexByName": {}}
    return panel.with_transformation(model.DataTransformerConfig("organize", options=options))
