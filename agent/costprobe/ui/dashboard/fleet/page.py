"""The page of a fleet and its API as one ASGI application over the fleet's database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
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
from costprobe.core.records import NS_PER_S
from costprobe.ui.dashboard.fleet import documents
from costprobe.ui.dashboard.fleet.documents import MapView, Metric, map_document
from costprobe.ui.dashboard.fleet.figures import Asked, Figures, FleetFigures, sections
from costprobe.ui.dashboard.guard import Guard
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.dashboard.parameters import (
    ParameterError,
    known,
    label_filter,
    one_of,
    whole_number,
)
from costprobe.ui.dashboard.responses import (
    STATIC_FILES,
    json_response,
    page_route,
    refused,
    unknown,
)
from costprobe.ui.fleet_documents import head_of

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
            "now": documents.now_document(of["now"]),
            "status": documents.status_document(of["status"]),
            "month": documents.month_document(month, timezone, amounts),
            "units": documents.units_document(of["units"]),
        }

    def of_spend(pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("label", "by", "shown"))
        by = parameters.get("by", BY[0])
        asked = Asked("spend", _labels(parameters), by if by in BY else _label_key("by", by))
        return documents.spend_document(figures.get(asked), by, _shown(parameters))

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
        return documents.gpu_document(found, host, device, link_of(host, device))

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
