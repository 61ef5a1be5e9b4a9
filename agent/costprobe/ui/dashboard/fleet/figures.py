"""Figures of a fleet for all open pages: asked of the database once, one question at a time, and kept.

The questions are those of `costprobe fleet`, each with its period and interval.

A question is asked only for a page that shows its answer, and again when that is older than its interval.
A request never waits for the database: it returns the last figures, with their age and the last error.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.databases.reader import FleetReader
from costprobe.adapters.http.errors import DeliveryError
from costprobe.core.clock import Clock
from costprobe.core.outside import one_line
from costprobe.core.periods import HOUR_NS, TimeSpan, period_at
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod, fleet_period
from costprobe.fleet.hosts import fleet_status
from costprobe.fleet.outliers import fleet_gpu_map
from costprobe.fleet.spend import FleetForecast, FleetSpend, fleet_forecast, fleet_spend
from costprobe.fleet.unit_costs import FleetUnitCost, fleet_unit_costs, unit_changes
from costprobe.spend.settings import HISTORY_HOURS

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
