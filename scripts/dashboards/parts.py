"""The few kinds of panel and variable that all dashboards are made of."""

from __future__ import annotations

from typing import Literal

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

from scripts.dashboards.marks import all_marks
from scripts.dashboards.queries import SOURCE, Query, Target

ALL = ".*"
Steps = tuple[tuple[float, str], ...]
_OPACITY = {"lines": 0, "areas": 25, "bars": 60}
# Green up to the first bound, then these.
WATCHED: tuple[str, str] = ("orange", "red")


def thresholds(steps: Steps, base: str = "green") -> dashboard.ThresholdsConfig:
    """Bounds with their colours; `base` holds below the first."""
    first = model.Threshold(color=base, value=None)
    more = [model.Threshold(color=color, value=value) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps([first, *more])


def bounds(orange: float, red: float) -> Steps:
    """Orange from the one, red from the other on."""
    return ((orange, WATCHED[0]), (red, WATCHED[1]))


def graph(
    title: str,
    unit: str,
    *queries: Query | tuple[str, str],
    about: str = "",
    steps: Steps = (),
    style: Literal["lines", "areas", "bars"] = "lines",
    span: int = 12,
) -> timeseries.Panel:
    """Lines over time.

    Args:
        title: The panel's.
        unit: As Grafana names it.
        queries: Each a query, or a statement and the alias of its series.
        about: What the reader has to know.
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
        text, alias = (query.text, query.alias) if isinstance(query, Query) else query
        panel.with_target(Target(text, chr(ord("A") + number), "time_series", alias))
    return panel


def figure(
    title: str, unit: str, text: str, *, about: str = "", steps: Steps = (), span: int = 4
) -> stat.Panel:
    """One number; `text` is the statement that gives it."""
    panel = (
        stat.Panel()
        .title(title)
        .unit(unit)
        .datasource(SOURCE)
        .span(span)
        .height(4)
        .color_mode(common.BigValueColorMode.VALUE if steps else common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(thresholds(steps))
        .no_value("none")
        .with_target(Target(text, "A", "time_series"))
    )
    return panel.description(about) if about else panel


def listing(
    title: str,
    text: str,
    *,
    about: str = "",
    units: dict[str, str] | None = None,
    steps: dict[str, Steps] | None = None,
    hide: tuple[str, ...] = (),
    span: int = 24,
) -> table.Panel:
    """A table of what a statement gives.

    Args:
        title: The panel's.
        text: The statement.
        about: What the reader has to know.
        units: Units of columns.
        steps: Bounds of columns, which colour their text.
        hide: Columns that say nothing, as the time of a summary.
        span: Width in 24ths of the page.
    """
    panel = table.Panel().title(title).datasource(SOURCE).span(span).height(8).show_header(True)
    panel.with_target(Target(text, "A", "table")).thresholds(thresholds(()))
    if about:
        panel.description(about)
    wanted: dict[str, list[model.DynamicConfigValue]] = {}
    for name, unit in (units or {}).items():
        wanted.setdefault(name, []).append(model.DynamicConfigValue("unit", unit))
    for name, colored in (steps or {}).items():
        cell = {"type": "color-text"}
        wanted.setdefault(name, []).extend(
            [
                model.DynamicConfigValue("thresholds", thresholds(colored).build()),
                model.DynamicConfigValue("custom.cellOptions", cell),
            ]
        )
    for name in hide:
        wanted.setdefault(name, []).append(model.DynamicConfigValue("custom.hidden", True))
    for name, properties in wanted.items():
        panel.override_by_name(name, properties)
    return panel


def source_variable() -> dashboard.DatasourceVariable:
    """Which InfluxDB is asked."""
    return dashboard.DatasourceVariable("datasource").label("Database").type("influxdb")


# The measurement whose series know the tag, and the choices made before it.
_KNOWN_FROM: dict[str, tuple[str, tuple[str, ...]]] = {
    "host": ("device", ()),
    "device": ("device", ("host",)),
    "probe": ("probe", ("host",)),
    "service": ("serving", ("host",)),
    # Every price is a device's, also where no probe and no service is.
    "currency": ("device", ()),
}


def choice(tag: str, *, several: bool = True) -> dashboard.QueryVariable:
    """A variable of a tag's values; `several` may be chosen, and all of them at first."""
    source, over = _KNOWN_FROM[tag]
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
        everything = model.VariableOption(text="All", value="$__all", selected=True)
        variable.multi(True).include_all(True).all_value(ALL).current(everything)
    return variable


def amount(name: str, label: str, default: str) -> dashboard.TextBoxVariable:
    """A variable for a number that the reader types."""
    return dashboard.TextBoxVariable(name).label(label).default_value(default)


def page(
    uid: str, title: str, about: str, variables: list[Builder[model.VariableModel]]
) -> dashboard.Dashboard:
    """An empty dashboard with its variables, marks and links to the others."""
    board = (
        dashboard.Dashboard(f"infercost: {title}")
        .uid(f"infercost-{uid}")
        .description(about)
        .tags(["infercost"])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-24h", "now")
        .refresh("1m")
        .timezone("browser")
        .link(
            dashboard.DashboardLink("infercost")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["infercost"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .annotations(all_marks())
    )
    for variable in [source_variable(), *variables]:
        board.with_variable(variable)
    return board
