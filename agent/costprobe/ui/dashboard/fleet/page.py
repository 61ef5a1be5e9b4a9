"""The page of a fleet and its API as one ASGI application over the fleet's database."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from costprobe.adapters.databases.question import HOST_MARK
from costprobe.adapters.databases.reader import FleetReader
from costprobe.core.clock import Clock
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import NS_PER_S, natural
from costprobe.drift.actions import action_of
from costprobe.fleet.hosts import HostState
from costprobe.fleet.outliers import GpuMap, MappedGpu
from costprobe.fleet.spend import FleetSpend, SpendByKey
from costprobe.fleet.unit_costs import UnitChange
from costprobe.ui.dashboard.fleet.figures import (
    Asked,
    Figures,
    FleetFigures,
    GpuFigures,
    MonthForecast,
    sections,
)
from costprobe.ui.dashboard.guard import (
    STATIC_FILES,
    Guard,
    json_response,
    page_route,
    refused,
    unknown,
)
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.dashboard.parameters import (
    ParameterError,
    known,
    label_filter,
    one_of,
    whole_number,
)
from costprobe.ui.fleet_documents import (
    compare_document,
    forecast_document,
    head_of,
    outliers_document,
    part_document,
)

# Hosts and groups that are shown unless more are asked for.
SHOWN_DEFAULT: Final = 18
SHOWN_MAX: Final = 20_000
BY: Final = ("gpu_model", "host", "model", "service", "tenant")
_LABEL_PREFIX: Final = "label:"
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
# What the page of a host shows for a GPU that deviates.
_HOST_VIEW: Final = {"field": "probe.throughput_per_s", "since": "7d"}

Pairs = list[tuple[str, str]]


class PlannedMonth(NamedTuple):
    """Money planned for each month.

    Attributes:
        amount: The amount.
        currency: Its currency; None for the only one of the fleet.
        timezone: IANA name of the time zone in which months begin.
        labels: Hosts that it is planned for; empty for all.
    """

    amount: float
    currency: str | None = None
    timezone: str = "UTC"
    labels: Mapping[str, str] = MappingProxyType({})


class FleetSetup(NamedTuple):
    """What is configured beside the database.

    Attributes:
        silent_after_s: A host without a row for so long, in s, is silent.
        planned: Budgets; of those for the same hosts and currency the first counts.
        host_url: Address of a host's page, with HOST_MARK; None for no links.
    """

    silent_after_s: float
    planned: tuple[PlannedMonth, ...] = ()
    host_url: str | None = None


class FleetPage(NamedTuple):
    """The application, and its thread, which ends before it exits."""

    app: Starlette
    live: FleetFigures


def fleet_page(
    open_reader: Callable[[], FleetReader],
    clock: Clock,
    setup: FleetSetup,
    allowed_hosts: Collection[str] = (),
) -> FleetPage:
    """Build the application.

    Args:
        open_reader: Opens the database of the fleet.
        clock: Clocks of the host.
        setup: Silence, budgets and links.
        allowed_hosts: Host names of the server, beside localhost and IP addresses.
    """
    figures = FleetFigures(clock, sections(open_reader, setup.silent_after_s, clock), head_of)

    def link_of(host: str, device: str) -> str | None:
        return host_link(setup.host_url, host, device)

    def of_fleet(pairs: Pairs) -> dict[str, Any]:
        labels = _labels(known(pairs, ("label",)))
        planned = [one for one in setup.planned if one.labels == dict(labels)]
        timezone = planned[0].timezone if planned else "UTC"
        amounts = {one.currency: one.amount for one in reversed(planned)}
        of = {name: figures.get(Asked(name, labels)) for name in ("now", "status", "units")}
        month = figures.get(Asked("month", labels, timezone))
        return {
            "now": now_document(of["now"]),
            "status": status_document(of["status"]),
            "month": month_document(month, timezone, amounts),
            "units": units_document(of["units"]),
        }

    def of_spend(pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("label", "by", "shown"))
        by = parameters.get("by", BY[0])
        asked = Asked("spend", _labels(parameters), by if by in BY else _label_key("by", by))
        return spend_document(figures.get(asked), by, _shown(parameters))

    def of_map(pairs: Pairs) -> dict[str, Any]:
        names = ("label", "group", "within", "metric", "order", "shown", "model")
        parameters = known(pairs, names)
        labels = _labels(parameters)
        group, within = (
            _label_key(name, parameters[name]) if parameters.get(name) else ""
            for name in ("group", "within")
        )
        view = MapView(
            cast("Metric", one_of(parameters, "metric", ("time", "energy"))),
            cast('Literal["worst", "name"]', one_of(parameters, "order", ("worst", "name"))),
            _shown(parameters),
            parameters.get("model", ""),
            group,
            within,
        )
        states: Figures = figures.get(Asked("status", labels))
        silent_s = {
            state.host: (states.head["until_ns"] - state.newest_ns) / NS_PER_S
            for state in states.value or ()
            if state.is_silent
        }
        found = figures.get(Asked("map", labels, group, within))
        return map_document(found, silent_s, view, link_of)

    def of_gpu(pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("host", "device"))
        if not parameters.get("host") or not parameters.get("device"):
            raise ParameterError("host and device: give both")
        host, device = parameters["host"], parameters["device"]
        found = figures.get(Asked("gpu", (("device", device), ("host", host))))
        return gpu_document(found, host, device, link_of(host, device))

    def route(path: str, answer: Callable[[Pairs], dict[str, Any]]) -> Route:
        def endpoint(request: Request) -> Response:
            answered = answer(request.query_params.multi_items())
            return json_response({"time_ms": clock.time_ns() // NS_PER_MS, **answered})

        return Route(path, endpoint)

    app = Starlette(
        routes=[
            page_route("fleet.html"),
            route("/api/fleet", of_fleet),
            route("/api/spend", of_spend),
            route("/api/map", of_map),
            route("/api/gpu", of_gpu),
            STATIC_FILES,
        ],
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts)],
        exception_handlers={ParameterError: refused, 404: unknown},
    )
    return FleetPage(app, figures)


def host_link(template: str | None, host: str, device: str) -> str | None:
    """Return the address of a host's page with a device selected; None if its name is no host name.

    Names come from the database: only those that cannot change the rest of the address are used.
    """
    if template is None or not _HOST_NAME.fullmatch(host):
        return None
    query = {**_HOST_VIEW, **({"device": device} if device else {})}
    return f"{template.replace(HOST_MARK, host)}?{urlencode(query, quote_via=quote)}"


def _labels(parameters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(label_filter(parameters).items())


def _label_key(name: str, text: str) -> str:
    """Return the name of a label.

    Raises:
        ParameterError: It is none.
    """
    label = text.removeprefix(_LABEL_PREFIX)
    if not _LABEL_NAME.fullmatch(label) or (name == "by" and label == text):
        choices = (
            f"{', '.join(BY)} or {_LABEL_PREFIX}NAME" if name == "by" else "the name of a label"
        )
        raise ParameterError(f"{name}: {text[:40]!r}: write {choices}")
    return label


def _shown(parameters: Mapping[str, str]) -> int:
    return whole_number(parameters, "shown", SHOWN_DEFAULT, (1, SHOWN_MAX))


# Silent hosts that are named.
NAMED_MAX: Final = 20


def framed(figures: Figures, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return figures with their age, period and problems; `figures` is null before the first answer."""
    head = figures.head
    return {
        "every_s": figures.every_s,
        "age_s": figures.age_s,
        "error": figures.error,
        "since_ms": None if not head else head["since_ns"] // NS_PER_MS,
        "until_ms": None if not head else head["until_ns"] // NS_PER_MS,
        "is_partial": bool(head and head["is_partial"]),
        "problems": head["problems"] if head else [],
        "figures": document,
    }


def now_document(figures: Figures) -> dict[str, Any]:
    """Return the spend of the last hour, and its rates."""
    total: FleetSpend | None = figures.value
    if total is None:
        return framed(figures, None)
    hours = _hours(figures)
    document = part_document(total)
    return framed(
        figures,
        {
            **document,
            "costs": [{**one, "cost_per_h": one["cost"] / hours} for one in document["costs"]],
            "power_w": None if total.energy_j is None else total.energy_j / (hours * 3600),
        },
    )


def _hours(figures: Figures) -> float:
    return float(figures.head["until_ns"] - figures.head["since_ns"]) / HOUR_NS


def status_document(figures: Figures) -> dict[str, Any]:
    """Return the numbers of hosts, and which are silent."""
    states: Sequence[HostState] | None = figures.value
    if states is None:
        return framed(figures, None)
    silent = [state for state in states if state.is_silent]
    end_ns = figures.head["until_ns"]
    return framed(
        figures,
        {
            "hosts": len(states),
            "silent": len(silent),
            "devices": sum(state.devices for state in states),
            "faults": sum(state.faults for state in states),
            "firing": sum(state.firing for state in states),
            "versions": dict(Counter(state.version for state in states).most_common()),
            "silent_hosts": [
                {"host": state.host, "silent_s": (end_ns - state.newest_ns) / NS_PER_S}
                for state in sorted(silent, key=lambda state: -state.newest_ns)[:NAMED_MAX]
            ],
        },
    )


def month_document(
    figures: Figures, timezone: str, amounts: Mapping[str | None, float]
) -> dict[str, Any]:
    """Return the spend of the month, and its forecast against the planned amount.

    Args:
        figures: A `MonthForecast`.
        timezone: IANA name of its time zone.
        amounts: Planned amounts by currency; None for the only currency of the fleet.
    """
    month: MonthForecast | None = figures.value
    if month is None:
        return framed(figures, None)
    only = amounts.get(None) if len(month.currencies) == 1 else None
    return framed(
        figures,
        {
            "timezone": timezone,
            "period_start_ms": month.period.start_ns // NS_PER_MS,
            "period_end_ms": month.period.end_ns // NS_PER_MS,
            "currencies": [
                forecast_document(one, amounts.get(one.currency) if only is None else only)
                for one in month.currencies
            ],
        },
    )


def units_document(figures: Figures) -> dict[str, Any]:
    """Return the unit costs of all models with their changes."""
    found: Sequence[UnitChange] | None = figures.value
    if found is None:
        return framed(figures, None)
    units = [
        {
            **asdict(one.now),
            "unit": one.unit,
            "cost": one.cost,
            "scale_samples": one.scale,
            "change_24h_pct": one.change_24h_pct,
            "change_7d_pct": one.change_7d_pct,
            "spread_share": one.spread,
            "cost_per_h": one.cost_per_h,
        }
        for one in found
    ]
    return framed(figures, {"units": units})


def spend_document(figures: Figures, by: str, shown: int) -> dict[str, Any]:
    """Return the spend of the largest groups, the rest, and the total."""
    spend: SpendByKey | None = figures.value
    if spend is None:
        return framed(figures, None)
    left: dict[str, float] = {}
    for part in spend.parts[shown:]:
        for one in part.costs:
            left[one.currency] = left.get(one.currency, 0.0) + one.cost
    return framed(
        figures,
        {
            "by": by,
            "total": part_document(spend.total),
            "parts": [part_document(part) for part in spend.parts[:shown]],
            "rest": None if spend.rest is None else part_document(spend.rest)["costs"],
            "left_out": max(0, len(spend.parts) - shown),
            "left_out_costs": [
                {"currency": currency or None, "cost": cost} for currency, cost in left.items()
            ],
        },
    )


def gpu_document(figures: Figures, host: str, device: str, url: str | None) -> dict[str, Any]:
    """Return what a GPU cost, and the address of its host's page."""
    found: GpuFigures | None = figures.value
    document = None
    if found is not None:
        document = {
            "total": part_document(found.total),
            "models": compare_document(found.unit_costs),
        }
    return {**framed(figures, document), "host": host, "device": device, "url": url}


# Outliers that are listed, the most expensive first.
OUTLIERS_MAX: Final = 50
# With more devices in all, such as MIG devices, those of hosts do not stand in common columns.
COLUMNS_MAX: Final = 16
_DIGITS: Final = 4

Metric = Literal["time", "energy"]
# A cell: the device, its excess in percent, and whether it is listed; null for a device that a host lacks.
Cell = tuple[str, float | None, bool] | None
LinkOf = Callable[[str, str], str | None]


class MapView(NamedTuple):
    """What of the map is shown.

    Attributes:
        metric: Deviation of the time or the energy per inference.
        order: `worst` for the hosts with the largest excess first, or `name`.
        shown: Most hosts.
        model: Only GPUs with this product name; empty for all.
        label: Label that hosts are grouped by; empty for none.
        within: Label whose levels are removed; empty for none.
    """

    metric: Metric
    order: Literal["worst", "name"]
    shown: int
    model: str
    label: str
    within: str


def map_document(
    figures: Figures, silent_s: Mapping[str, float], view: MapView, link_of: LinkOf
) -> dict[str, Any]:
    """Return the shown hosts, and all outliers up to OUTLIERS_MAX.

    Args:
        figures: A `GpuMap`.
        silent_s: Silent hosts, and for how long.
        view: What is shown.
        link_of: Address of a host's page for a device, or None.
    """
    found: GpuMap | None = figures.value
    if found is None:
        return framed(figures, None)
    gpus = [gpu for gpu in found.gpus if view.model in ("", gpu.model)]
    columns = sorted({gpu.device for gpu in gpus}, key=natural)
    hosts: dict[str, list[MappedGpu]] = defaultdict(list)
    for gpu in gpus:
        hosts[gpu.host].append(gpu)

    def worst(host: str) -> float:
        return max((_excess(gpu, view.metric) or 0.0 for gpu in hosts[host]), default=0.0)

    def listed(host: str) -> bool:
        return any(gpu.excess.is_listed for gpu in hosts[host])

    order: Callable[[str], Any] = natural
    if view.order == "worst":
        order = lambda host: (not listed(host), -worst(host), natural(host))  # noqa: E731 - one of two
    shown = sorted(hosts, key=order)[: view.shown]
    if view.label:
        # Stable: within a group the order remains; groups follow their first host.
        places = {label: n for n, label in reversed(list(enumerate(_places(shown, hosts))))}
        shown.sort(key=lambda host: places[hosts[host][0].label])
    outliers = outliers_document(
        replace(found.outliers, outliers=found.outliers.outliers[:OUTLIERS_MAX]),
        [view.within] if view.within else [],
    )
    for one in outliers["outliers"]:
        one["url"] = link_of(one["host"], one["device"] or "")
        one["action"] = action_of(one["cause"])
    return framed(
        figures,
        {
            **outliers,
            "outliers_left_out": max(0, len(found.outliers.outliers) - OUTLIERS_MAX),
            "outliers_total": len(found.outliers.outliers),
            "outliers_costs": _costs(found),
            "metric": view.metric,
            "gpus": len(gpus),
            "gpu_models": sorted({gpu.model for gpu in found.gpus}),
            "hosts": len(hosts),
            "columns": columns if len(columns) <= COLUMNS_MAX else None,
            "rows": [
                {
                    "host": host,
                    "group": hosts[host][0].label or None,
                    "silent_s": silent_s.get(host),
                    "cells": _cells(hosts[host], columns, view.metric),
                }
                for host in shown
            ],
        },
    )


def _costs(found: GpuMap) -> list[dict[str, Any]]:
    """Return what all outliers cost a month, by currency."""
    costs: dict[str, float] = defaultdict(float)
    for one in found.outliers.outliers:
        if one.cost is not None:
            costs[one.cost.currency] += one.cost.mean
    return [{"currency": currency, "cost_per_month": cost} for currency, cost in costs.items()]


def _places(hosts: Sequence[str], gpus: Mapping[str, Sequence[MappedGpu]]) -> list[str]:
    return [gpus[host][0].label for host in hosts]


def _cells(gpus: Sequence[MappedGpu], columns: Sequence[str], metric: Metric) -> list[Cell]:
    cells: dict[str, Cell] = {
        gpu.device: (gpu.device, _pct(_excess(gpu, metric)), gpu.excess.is_listed) for gpu in gpus
    }
    if len(columns) > COLUMNS_MAX:
        return [cells[device] for device in sorted(cells, key=natural)]
    return [cells.get(device) for device in columns]


def _excess(gpu: MappedGpu, metric: Metric) -> float | None:
    return gpu.excess.time if metric == "time" else gpu.excess.energy


def _pct(share: float | None) -> float | None:
    return None if share is None else round(share * 100, _DIGITS)
