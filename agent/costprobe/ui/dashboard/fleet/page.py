"""The page of a fleet: its figures, and its API as one ASGI application over the fleet's database.

The figures of all open pages are asked of the database once, one question at a time, and kept. The
questions are those of `costprobe fleet`, each with its period and interval. A question is asked only
for a page that shows its answer, and again when that is older than its interval. A request never
waits for the database: it returns the last figures, with their age and the last error.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from threading import Condition, Thread
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
from costprobe.adapters.http.errors import DeliveryError
from costprobe.core.clock import Clock
from costprobe.core.outside import one_line
from costprobe.core.periods import HOUR_NS, TimeSpan, period_at
from costprobe.core.records import NS_PER_S, natural
from costprobe.core.units import HOUR_S
from costprobe.drift.actions import action_of
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod, fleet_period
from costprobe.fleet.hosts import HostState, fleet_status
from costprobe.fleet.outliers import GpuMap, MappedGpu, fleet_gpu_map
from costprobe.fleet.spend import FleetForecast, FleetSpend, SpendByKey, fleet_forecast, fleet_spend
from costprobe.fleet.unit_costs import FleetUnitCost, UnitChange, fleet_unit_costs, unit_changes
from costprobe.spend.settings import HISTORY_HOURS
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
    spend_document,
)

log = logging.getLogger(__name__)

# Answers that are kept, the least recently shown dropped first.
KEPT_MAX: Final = 64
RETRY_S: Final = 30.0
# Pause after a question, as a multiple of its duration, to limit the load of the database.
REST_FACTOR: Final = 20
REST_S_MAX: Final = 900.0


class Asked(NamedTuple):
    """A question of the page; equal ones share one answer.

    Attributes:
        section: A key of the table of sections.
        labels: Only rows with these tags.
        key: What the answer is divided or grouped by; of a month its time zone.
        within: Label within whose values GPUs are compared.
    """

    section: str
    labels: tuple[tuple[str, str], ...] = ()
    key: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page.

    Attributes:
        every_s: Age at which its figures are asked again, in s.
        answers: Opens the database for its period.
        figures: Asks for the figures.
    """

    every_s: float
    answers: Callable[[Asked], AbstractContextManager[FleetAnswers]]
    figures: Callable[[FleetAnswers, Asked], Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """The last answer to a question.

    Attributes:
        every_s: Age at which it is asked again, in s.
        value: The figures; None before the first answer.
        head: Period and problems of the figures.
        age_s: Seconds since they were answered; None before the first answer.
        error: Why the newest attempt failed; empty if it did not.
    """

    every_s: float
    value: Any = None
    head: Mapping[str, Any] = field(default_factory=dict)
    age_s: float | None = None
    error: str = ""


@dataclass(slots=True)
class _Kept:
    value: Any = None
    head: Mapping[str, Any] = field(default_factory=dict)
    answered_ns: int | None = None
    error: str = ""
    due_ns: int = 0
    is_waiting: bool = False


class FleetFigures:
    """Asks the questions of all open pages in one thread, and keeps the answers.

    Args:
        clock: Clocks of the host.
        sections: The sections by name.
        head: Period and problems of an answer, as a document.
    """

    def __init__(
        self,
        clock: Clock,
        sections: Mapping[str, PageSection],
        head: Callable[[FleetAnswers], Mapping[str, Any]],
    ) -> None:
        self._clock = clock
        self._sections = sections
        self._head = head
        self._kept: OrderedDict[Asked, _Kept] = OrderedDict()
        self._waiting: deque[Asked] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._is_closed = False

    def get(self, asked: Asked) -> Figures:
        """Return the last figures, and ask again in the background if they are due."""
        now_ns = self._clock.monotonic_ns()
        with self._changed:
            kept = self._kept.setdefault(asked, _Kept())
            self._kept.move_to_end(asked)
            while len(self._kept) > KEPT_MAX:
                dropped, old = self._kept.popitem(last=False)
                if old.is_waiting and dropped in self._waiting:
                    self._waiting.remove(dropped)
            if not kept.is_waiting and now_ns >= kept.due_ns and not self._is_closed:
                kept.is_waiting = True
                self._waiting.append(asked)
                self._start()
                self._changed.notify()
            age_s = None if kept.answered_ns is None else (now_ns - kept.answered_ns) / NS_PER_S
            every_s = self._sections[asked.section].every_s
            return Figures(every_s, kept.value, kept.head, age_s, kept.error)

    def close(self) -> None:
        """Ask no more questions; that in progress is not waited for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="fleet-figures", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                asked = self._waiting.popleft()
                kept = self._kept.get(asked)
            # Dropped meanwhile: no page shows it.
            if kept is not None:
                self._ask(asked, kept)

    def _ask(self, asked: Asked, kept: _Kept) -> None:
        section = self._sections[asked.section]
        begun_ns = self._clock.monotonic_ns()
        error = ""
        value, head = kept.value, kept.head
        try:
            with section.answers(asked) as answers:
                value = section.figures(answers, asked)
                head = self._head(answers)
        except DeliveryError as refused:
            error = one_line(refused.reason)
        except Exception as failure:
            # The thread serves all sections, and must outlive a failure of one.
            log.exception("fleet page: %s failed", asked.section)
            error = f"internal error: {type(failure).__name__}"
        ended_ns = self._clock.monotonic_ns()
        spent_s = (ended_ns - begun_ns) / NS_PER_S
        rest_s = RETRY_S if error else max(section.every_s, min(REST_S_MAX, REST_FACTOR * spent_s))
        with self._changed:
            kept.value, kept.head, kept.error = value, head, error
            if not error:
                kept.answered_ns = ended_ns
            kept.due_ns = ended_ns + int(rest_s * NS_PER_S)
            kept.is_waiting = False


DAY_S: Final = 86_400
WEEK_S: Final = 7 * DAY_S


class MonthForecast(NamedTuple):
    """The spend of a month.

    Attributes:
        period: The month.
        currencies: Spend and forecast by currency.
    """

    period: TimeSpan
    currencies: tuple[FleetForecast, ...]


class GpuFigures(NamedTuple):
    """What one GPU cost.

    Attributes:
        total: Its spend.
        unit_costs: Unit costs of the probes on it.
    """

    total: FleetSpend
    unit_costs: tuple[FleetUnitCost, ...]


def sections(
    open_reader: Callable[[], FleetReader], silent_after_s: float, clock: Clock
) -> Mapping[str, PageSection]:
    """Return the sections of the page by name.

    Args:
        open_reader: Opens the database of the fleet.
        silent_after_s: A host without a row for so long, in s, is silent.
        clock: Clocks of the host.
    """

    def over(
        since_s: float, *, to_the_second: bool = False
    ) -> Callable[[Asked], AbstractContextManager[FleetAnswers]]:
        @contextmanager
        def opened(asked: Asked) -> Iterator[FleetAnswers]:
            now_ns = clock.time_ns()
            end_ns = now_ns - ARRIVED_NS
            period = fleet_period(now_ns - int(since_s * NS_PER_S), end_ns, now_ns)
            if to_the_second:
                period = FleetPeriod(period.start_ns, end_ns // NS_PER_S * NS_PER_S, 1, now_ns)
            with closing(open_reader()) as reader:
                yield FleetAnswers(reader, period, dict(asked.labels))

        return opened

    @contextmanager
    def of_month(asked: Asked) -> Iterator[FleetAnswers]:
        now_ns = clock.time_ns()
        month = _month(now_ns, asked.key)
        since_ns = min(month.start_ns, now_ns - HISTORY_HOURS * HOUR_NS)
        period = fleet_period(since_ns, now_ns - ARRIVED_NS, now_ns)
        with closing(open_reader()) as reader:
            yield FleetAnswers(reader, period, dict(asked.labels))

    return {
        "now": PageSection(60.0, over(HOUR_S), lambda answers, _: fleet_spend(answers, "").total),
        "status": PageSection(
            60.0,
            over(WEEK_S, to_the_second=True),
            lambda answers, _: tuple(fleet_status(answers, silent_after_s)),
        ),
        "units": PageSection(120.0, over(HOUR_S), lambda answers, _: tuple(unit_changes(answers))),
        "spend": PageSection(
            300.0, over(DAY_S), lambda answers, asked: fleet_spend(answers, asked.key)
        ),
        "map": PageSection(
            600.0,
            over(WEEK_S),
            lambda answers, asked: fleet_gpu_map(answers, asked.key, asked.within),
        ),
        "month": PageSection(600.0, of_month, _forecast),
        "gpu": PageSection(
            300.0,
            over(DAY_S),
            lambda answers, _: GpuFigures(
                fleet_spend(answers, "").total, tuple(fleet_unit_costs(answers, "model"))
            ),
        ),
    }


def _month(now_ns: int, timezone: str) -> TimeSpan:
    return period_at("month", timezone, now_ns // HOUR_NS * HOUR_NS - 1)


def _forecast(answers: FleetAnswers, asked: Asked) -> MonthForecast:
    month = _month(answers.period.now_ns, asked.key)
    return MonthForecast(month, tuple(fleet_forecast(answers, month, asked.key)))


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
        until_ns = of["status"].head.get("until_ns", 0)
        head = of["now"].head
        hours = (head["until_ns"] - head["since_ns"]) / HOUR_NS if head else 0.0
        return {
            "now": framed(of["now"], lambda total: now_document(total, hours)),
            "status": framed(of["status"], lambda states: status_document(states, until_ns)),
            "month": framed(month, lambda found: month_document(found, timezone, amounts)),
            "units": framed(of["units"], units_document),
        }

    def of_spend(pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("label", "by", "shown"))
        by = parameters.get("by", BY[0])
        asked = Asked("spend", _labels(parameters), by if by in BY else _label_key("by", by))
        shown = _shown(parameters)
        return framed(figures.get(asked), lambda found: page_spend_document(found, by, shown))

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
        return framed(found, lambda gpus: map_document(gpus, silent_s, view, link_of))

    def of_gpu(pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("host", "device"))
        if not parameters.get("host") or not parameters.get("device"):
            raise ParameterError("host and device: give both")
        host, device = parameters["host"], parameters["device"]
        found = figures.get(Asked("gpu", (("device", device), ("host", host))))
        own = {"host": host, "device": device, "url": link_of(host, device)}
        return framed(found, gpu_document) | own

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


def framed(figures: Figures, document: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """Return figures as a document, with their age, period and problems; null before the first answer."""
    head, value = figures.head, figures.value
    return {
        "every_s": figures.every_s,
        "age_s": figures.age_s,
        "error": figures.error,
        "since_ms": None if not head else head["since_ns"] // NS_PER_MS,
        "until_ms": None if not head else head["until_ns"] // NS_PER_MS,
        "is_partial": bool(head and head["is_partial"]),
        "problems": head["problems"] if head else [],
        "figures": None if value is None else document(value),
    }


def now_document(total: FleetSpend, hours: float) -> dict[str, Any]:
    """Return the spend of some hours, and its rates."""
    document = part_document(total)
    return {
        **document,
        "costs": [{**one, "cost_per_h": one["cost"] / hours} for one in document["costs"]],
        "power_w": None if total.energy_j is None else total.energy_j / (hours * HOUR_S),
    }


def status_document(states: Sequence[HostState], end_ns: int) -> dict[str, Any]:
    """Return the numbers of hosts, and which are silent at a UTC ns."""
    silent = [state for state in states if state.is_silent]
    return {
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
    }


def month_document(
    month: MonthForecast, timezone: str, amounts: Mapping[str | None, float]
) -> dict[str, Any]:
    """Return the spend of the month, and its forecast against the planned amount.

    Args:
        month: The spend.
        timezone: IANA name of its time zone.
        amounts: Planned amounts by currency; None for the only currency of the fleet.
    """
    only = amounts.get(None) if len(month.currencies) == 1 else None
    return {
        "timezone": timezone,
        "period_start_ms": month.period.start_ns // NS_PER_MS,
        "period_end_ms": month.period.end_ns // NS_PER_MS,
        "currencies": [
            forecast_document(one, amounts.get(one.currency) if only is None else only)
            for one in month.currencies
        ],
    }


def units_document(found: Sequence[UnitChange]) -> dict[str, Any]:
    """Return the unit costs of all models with their changes."""
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
    return {"units": units}


def page_spend_document(spend: SpendByKey, by: str, shown: int) -> dict[str, Any]:
    """Return the spend of the largest groups, the rest, and the total."""
    left: dict[str, float] = defaultdict(float)
    for part in spend.parts[shown:]:
        for one in part.costs:
            left[one.currency] += one.cost
    return {
        **spend_document(spend._replace(parts=spend.parts[:shown]), by),
        "left_out": max(0, len(spend.parts) - shown),
        "left_out_costs": [
            {"currency": currency or None, "cost": cost} for currency, cost in left.items()
        ],
    }


def gpu_document(found: GpuFigures) -> dict[str, Any]:
    """Return what a GPU cost."""
    return {"total": part_document(found.total), "models": compare_document(found.unit_costs)}


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
    found: GpuMap, silent_s: Mapping[str, float], view: MapView, link_of: LinkOf
) -> dict[str, Any]:
    """Return the shown hosts, and all outliers up to OUTLIERS_MAX.

    Args:
        found: The GPUs.
        silent_s: Silent hosts, and for how long.
        view: What is shown.
        link_of: Address of a host's page for a device, or None.
    """
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
        labels = [hosts[host][0].label for host in shown]
        places = {label: labels.index(label) for label in labels}
        shown.sort(key=lambda host: places[hosts[host][0].label])
    outliers = outliers_document(
        replace(found.outliers, outliers=found.outliers.outliers[:OUTLIERS_MAX]),
        [view.within] if view.within else [],
    )
    for one in outliers["outliers"]:
        one["url"] = link_of(one["host"], one["device"] or "")
        one["action"] = action_of(one["cause"])
    return {
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
    }


def _costs(found: GpuMap) -> list[dict[str, Any]]:
    """Return what all outliers cost a month, by currency."""
    costs: dict[str, float] = defaultdict(float)
    for one in found.outliers.outliers:
        if one.cost is not None:
            costs[one.cost.currency] += one.cost.mean
    return [{"currency": currency, "cost_per_month": cost} for currency, cost in costs.items()]


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
