"""The panel and variable builders that all dashboards share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

from scripts.dashboards.marks import all_marks
from scripts.dashboards.promql import columns_of
from scripts.dashboards.queries import SOURCE, Query, Target, assumed_prices

ALL = ".*"
Steps = tuple[tuple[float, str], ...]
_OPACITY = {"lines": 0, "areas": 25, "bars": 60}
# Green below the first bound, then these.
WATCHED: tuple[str, str] = ("orange", "red")


def thresholds(steps: Steps, base: str = "green") -> dashboard.ThresholdsConfig:
    """Return thresholds with their colors; `base` applies below the first."""
    first = model.Threshold(color=base, value=None)
    more = [model.Threshold(color=color, value=value) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps([first, *more])


def bounds(orange: float, red: float) -> Steps:
    """Return thresholds: orange from the first value, red from the second."""
    return ((orange, WATCHED[0]), (red, WATCHED[1]))


def graph(
    title: str,
    unit: str,
    *queries: Query,
    about: str = "",
    steps: Steps = (),
    style: Literal["lines", "areas", "bars"] = "lines",
    span: int = 12,
) -> timeseries.Panel:
    """Lines over time.

    Args:
        title: Title of the panel.
        unit: Grafana's name of the unit.
        queries: Its queries.
        about: Description shown with the panel.
        steps: Bounds, drawn as lines.
        style: Areas, stacked, for parts of a sum; bars, stacked, for amounts in a bucket.
        span: Width in 24ths of the page.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .unit(unit)
        .datasource(SOURCE)
        .span(span)
        .height(8)
        .line_width(1)
        .fill_opacity(_OPACITY[style])
        .show_points(common.VisibilityMode.AUTO)
        .min(0.0)
        .span_nulls(True)
        .thresholds(thresholds(steps))
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "mean", "max"])
            # Of many hosts the highest are in view.
            .sort_by("Max")
            .sort_desc(True)
        )
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
    )
    if about:
        panel.description(about)
    if style == "bars":
        panel.draw_style(common.GraphDrawStyle.BARS)
    if style != "lines":
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if steps:
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.DASHED)
        )
    for number, query in enumerate(queries):
        panel.with_target(target(query, number, "time_series"))
    return panel


def target(query: Query, number: int, result: str) -> Target:
    """Return a query as a panel's target; `number` counts the panel's targets."""
    return Target(query, chr(ord("A") + number), result, columns_of(query))


def figure(
    title: str,
    unit: str,
    *queries: Query,
    about: str = "",
    steps: Steps = (),
    base: str = "green",
    shown: str = "",
    span: int = 4,
) -> stat.Panel:
    """Return a panel with a number for each query.

    Args:
        title: Title of the panel.
        unit: Grafana's name of the unit.
        queries: Its queries.
        about: Description shown with the panel.
        steps: Thresholds, which color the number.
        base: Color below the first.
        shown: Field of the result; empty for its numbers.
        span: Width in 24ths of the page.
    """
    reduced = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    panel = (
        stat.Panel()
        .title(title)
        .unit(unit)
        .datasource(SOURCE)
        .span(span)
        .height(4)
        .color_mode(common.BigValueColorMode.VALUE if steps else common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(reduced.fields(f"/^{shown}$/") if shown else reduced)
        .thresholds(thresholds(steps, base))
        .no_value("none")
    )
    for number, query in enumerate(queries):
        panel.with_target(target(query, number, "time_series"))
    return panel.description(about) if about else panel


def assumed(span: int) -> stat.Panel:
    """Return the panel beside a cost that names the devices with an assumed price."""
    return figure(
        "Devices with an assumed price",
        "none",
        assumed_prices(),
        steps=((1, "orange"),),
        about="Their costs in $currency are estimates from a list price: set [[price]] on the host.",
        span=span,
    )


def sparklines(title: str, query: Query, *, span: int) -> stat.Panel:
    """Return the newest value of each series above its curve."""
    return (
        stat.Panel()
        .title(title)
        .unit("short")
        .datasource(SOURCE)
        .span(span)
        .height(8)
        .color_mode(common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(thresholds(()))
        .no_value("none")
        .with_target(target(query, 0, "time_series"))
    )


def source_variable() -> dashboard.DatasourceVariable:
    """Return the variable that selects the InfluxDB data source."""
    return dashboard.DatasourceVariable("datasource").label("Database").type("influxdb")


# For each tag: a measurement whose series have it, and the variables that restrict its values.
_TAG_SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "host": ("device", ()),
    "device": ("device", ("host",)),
    "probe": ("probe", ("host",)),
    "service": ("serving", ("host",)),
    # `device` has every currency, even on hosts without probes and services.
    "currency": ("device", ()),
}


def choice(tag: str, *, several: bool = True) -> dashboard.QueryVariable:
    """Return a variable of a tag's values; with `several`, many can be selected (default: all)."""
    source, over = _TAG_SOURCES[tag]
    where = " AND ".join(f'"{name}" =~ /^${name}$/' for name in over)
    text = f'SHOW TAG VALUES FROM "{source}" WITH KEY = "{tag}"' + (f" WHERE {where}" * bool(over))
    variable = (
        dashboard.QueryVariable(tag)
        .label(tag.capitalize())
        .datasource(SOURCE)
        .query(text)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )
    if several:
        all_values = model.VariableOption(text="All", value="$__all", selected=True)
        variable.multi(True).include_all(True).all_value(ALL).current(all_values)
    return variable


def amount(name: str, label: str, default: str) -> dashboard.TextBoxVariable:
    """Return a variable for a number that the reader enters."""
    return dashboard.TextBoxVariable(name).label(label).default_value(default)


def page(
    uid: str, title: str, about: str, variables: Sequence[Builder[model.VariableModel]]
) -> dashboard.Dashboard:
    """Return a dashboard without panels, with its variables, annotations and links to the others."""
    board = (
        dashboard.Dashboard(f"costprobe: {title}")
        .uid(f"costprobe-{uid}")
        .description(about)
        .tags(["costprobe"])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-24h", "now")
        .refresh("1m")
        .timezone("browser")
        .link(
            dashboard.DashboardLink("costprobe")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["costprobe"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .annotations([*all_marks()])
    )
    for variable in [source_variable(), *variables]:
        board.with_variable(variable)
    return board
