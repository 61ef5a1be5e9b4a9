"""The questions of a fleet's page: those of `costprobe fleet`, each with its period and interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final, NamedTuple

from costprobe.adapters.databases.reader import FleetReader
from costprobe.core.clock import Clock
from costprobe.core.periods import HOUR_NS, TimeSpan, period_at
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import (
    ARRIVED_NS,
    FleetAnswers,
    FleetPeriod,
    fleet_period,
)
from costprobe.fleet.hosts import fleet_status
from costprobe.fleet.outliers import fleet_gpu_map
from costprobe.fleet.spend import FleetForecast, FleetSpend, fleet_forecast, fleet_spend
from costprobe.fleet.unit_costs import FleetUnitCost, fleet_unit_costs, unit_changes
from costprobe.spend.settings import HISTORY_HOURS
from costprobe.ui.dashboard.fleet.figures import Asked, PageSection

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
