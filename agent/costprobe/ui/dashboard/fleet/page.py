"""The page of a fleet: its figures, and its API as one ASGI application over the fleet's database.

The figures of all open pages are asked of the database once, one question at a time, and kept. The
questions are those of `costprobe fleet`, each with its period and interval. A question is asked only
for a page that shows its answer, and again when that is older than its interval. A request never
waits for the database: it returns the last figures, with their age and the last error.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
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
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod, fleet_period, hours_of
from costprobe.fleet.groups import fleet_groups
from costprobe.fleet.hosts import fleet_status
from costprobe.fleet.outliers import fleet_gpu_map
from costprobe.fleet.spend import assumed_currencies, fleet_forecast, fleet_spend
from costprobe.fleet.unit_costs import fleet_unit_costs, unit_changes
from costprobe.spend.settings import HISTORY_HOURS
from costprobe.ui.dashboard.fleet.documents import (
    GpuFigures,
    MapView,
    Metric,
    MonthForecast,
    NowSpend,
    banner,
    gpu_document,
    map_document,
    outliers_table,
    spend_table,
    tiles,
    units_table,
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
from costprobe.ui.fleet_documents import head_of

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
        "now": PageSection(60.0, over(HOUR_S), lambda answers, _: _now(answers)),
        "status": PageSection(
            60.0,
            over(WEEK_S, to_the_second=True),
            lambda answers, _: tuple(fleet_status(answers, silent_after_s)),
        ),
        "units": PageSection(120.0, over(HOUR_S), lambda answers, _: tuple(unit_changes(answers))),
        "groups": PageSection(300.0, over(DAY_S), lambda answers, _: tuple(fleet_groups(answers))),
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
                fleet_spend(answers, "").total,
                fleet_unit_costs(answers, "model"),
                assumed_currencies(answers),
            ),
        ),
    }


def _month(now_ns: int, timezone: str) -> TimeSpan:
    return period_at("month", timezone, now_ns // HOUR_NS * HOUR_NS - 1)


def _now(answers: FleetAnswers) -> NowSpend:
    total = fleet_spend(answers, "").total
    return NowSpend(total, assumed_currencies(answers), hours_of(answers.period))


def _forecast(answers: FleetAnswers, asked: Asked) -> MonthForecast:
    month = _month(answers.period.now_ns, asked.key)
    return MonthForecast(month, asked.key, fleet_forecast(answers, month, asked.key), {})


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
Labels = tuple[tuple[str, str], ...]


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
    documents = _Documents(figures, setup)

    def route(path: str, answer: Callable[[Pairs], dict[str, Any]]) -> Route:
        def endpoint(request: Request) -> Response:
            answered = answer(request.query_params.multi_items())
            return json_response({"time_ms": clock.time_ns() // NS_PER_MS, **answered})

        return Route(path, endpoint)

    app = Starlette(
        routes=[
            page_route("fleet.html"),
            route("/api/fleet", documents.of_fleet),
            route("/api/spend", documents.of_spend),
            route("/api/map", documents.of_map),
            route("/api/gpu", documents.of_gpu),
            STATIC_FILES,
        ],
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts)],
        exception_handlers={ParameterError: refused, 404: unknown},
    )
    return FleetPage(app, figures)


class _Documents:
    """The answers of the API from the last figures.

    Args:
        figures: The figures.
        setup: Budgets and links.
    """

    def __init__(self, figures: FleetFigures, setup: FleetSetup) -> None:
        self._figures, self._setup = figures, setup

    def _link_of(self, host: str, device: str) -> str | None:
        return host_link(self._setup.host_url, host, device)

    def _assumed(self, labels: Labels) -> Collection[str]:
        now = self._figures.get(Asked("now", labels)).value
        return () if now is None else now.assumed

    def _silent_s(self, labels: Labels) -> Mapping[str, float]:
        states = self._figures.get(Asked("status", labels))
        return {
            state.host: (states.head["until_ns"] - state.newest_ns) / NS_PER_S
            for state in states.value or ()
            if state.is_silent
        }

    def of_fleet(self, pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("label", "group", "within"))
        labels = _labels(parameters)
        planned = [one for one in self._setup.planned if one.labels == dict(labels)]
        timezone = planned[0].timezone if planned else "UTC"
        parts = {
            name: self._figures.get(Asked(name, labels))
            for name in ("now", "status", "units", "groups")
        }
        parts["month"] = self._figures.get(Asked("month", labels, timezone))
        gpus = self._figures.get(_asked_map(parameters, labels))
        now, states, units, groups, month = (one.value for one in parts.values())
        if month is not None:
            amounts = {one.currency: one.amount for one in reversed(planned)}
            month = month._replace(planned=amounts)
        hosts = None if states is None else (states, parts["status"].head["until_ns"])
        errors = [one.error for one in (*parts.values(), gpus) if one.error]
        waiting = "no answer" if parts["now"].error else "asking the database"
        found = None if gpus.value is None else gpus.value.outliers
        nothing = "No probe or service had a cost in the last hour."
        is_empty = states is not None and not states
        return {
            "parts": {name: _state(one) for name, one in parts.items()},
            "timezone": timezone,
            "is_empty": is_empty,
            "tiles": tiles(now, month, hosts, waiting),
            "change": banner(found, units, self._assumed(labels), is_failing=bool(errors)),
            "units": None
            if units is None
            else units_table(
                units,
                groups or (),
                self._assumed(labels),
                _next_step(labels) if is_empty else nothing,
            ),
        }

    def of_spend(self, pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("label", "by", "shown"))
        by, labels = parameters.get("by", BY[0]), _labels(parameters)
        found = self._figures.get(Asked("spend", labels, by if by in BY else _label_key("by", by)))
        shown = _shown(parameters)
        return {
            "parts": {"spend": _state(found)},
            "spend": None
            if found.value is None
            else spend_table(found.value, shown, self._assumed(labels)),
        }

    def of_map(self, pairs: Pairs) -> dict[str, Any]:
        names = ("label", "group", "within", "metric", "order", "shown", "model")
        parameters = known(pairs, names)
        labels = _labels(parameters)
        asked = _asked_map(parameters, labels)
        view = MapView(
            cast("Metric", one_of(parameters, "metric", ("time", "energy"))),
            cast('Literal["worst", "name"]', one_of(parameters, "order", ("worst", "name"))),
            _shown(parameters),
            parameters.get("model", ""),
            asked.key,
            asked.within,
        )
        found = self._figures.get(asked)
        answer: dict[str, Any] = {"parts": {"map": _state(found)}, "map": None, "outliers": None}
        if (gpus := found.value) is None:
            return answer
        return answer | {
            "map": map_document(
                gpus, self._silent_s(labels), view, "No GPU sent rows in the last 7 days."
            ),
            "outliers": outliers_table(
                gpus.outliers, asked.within, self._assumed(labels), self._link_of
            ),
        }

    def of_gpu(self, pairs: Pairs) -> dict[str, Any]:
        parameters = known(pairs, ("host", "device", "label", "group", "within"))
        host, device = parameters.get("host"), parameters.get("device", "")
        if not host:
            raise ParameterError("host: name one, and a device of it")
        parts: dict[str, Figures] = {}
        if device:
            parts["gpu"] = self._figures.get(Asked("gpu", (("device", device), ("host", host))))
        labels = _labels(parameters)
        gpus = self._figures.get(_asked_map(parameters, labels)).value
        costs = parts["gpu"].value if parts else None
        url = self._link_of(host, device)
        return {
            "parts": {name: _state(one) for name, one in parts.items()},
            "gpu": gpu_document((host, device), gpus, self._silent_s(labels), costs, url),
        }


def host_link(template: str | None, host: str, device: str) -> str | None:
    """Return the address of a host's page with a device selected; None if its name is no host name.

    Names come from the database: only those that cannot change the rest of the address are used.
    """
    if template is None or not _HOST_NAME.fullmatch(host):
        return None
    query = {**_HOST_VIEW, **({"device": device} if device else {})}
    return f"{template.replace(HOST_MARK, host)}?{urlencode(query, quote_via=quote)}"


def _labels(parameters: Mapping[str, str]) -> Labels:
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


def _asked_map(parameters: Mapping[str, str], labels: Labels) -> Asked:
    group, within = (
        _label_key(name, parameters[name]) if parameters.get(name) else ""
        for name in ("group", "within")
    )
    return Asked("map", labels, group, within)


def _next_step(labels: Labels) -> str:
    """Return what to do where no host has rows."""
    if labels:
        return "No host with this label has sent rows in the last 7 days."
    return (
        "No host has sent rows to the database of [fleet] in the last 7 days. Add that database as a"
        " [[sink]] on each host; `costprobe doctor` there checks it."
    )


def _state(figures: Figures) -> dict[str, Any]:
    """Return how old figures are, and what is wrong with them; an age of null before the first answer."""
    head = figures.head
    return {
        "every_s": figures.every_s,
        "age_s": figures.age_s,
        "error": figures.error,
        "problems": head["problems"] if head else [],
    }
