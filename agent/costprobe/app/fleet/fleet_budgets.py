"""The check of the fleet's budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from costprobe.adapters.fleet.watch_settings import FleetBudgetConfig
from costprobe.app.fleet.answers import ARRIVED_NS
from costprobe.app.fleet.check import FleetCheck, FleetQuery
from costprobe.app.fleet.forecast import HOUR_S, fleet_forecast
from costprobe.core.incident import Fault
from costprobe.core.records import Point
from costprobe.domain.costing.budgets.budget import BudgetStatus
from costprobe.domain.costing.budgets.budget_watch import BudgetWatch, budget_point
from costprobe.domain.costing.budgets.periods import HOUR_NS, period_at
from costprobe.domain.costing.budgets.settings import BudgetConfig
from costprobe.domain.costing.budgets.spend import HISTORY_HOURS

_NO_HISTORY: Final = "there is too little data for a forecast"


class FleetBudgets(FleetCheck):
    """Computes the status of each budget, whose rows the rules of budgets evaluate.

    Args:
        budgets: The tables [[fleet.watch.budget]].
        tags: Labels, on every row.
    """

    name = "budgets"

    def __init__(self, budgets: Sequence[FleetBudgetConfig], tags: Mapping[str, str]) -> None:
        self._budgets = budgets
        self._tags = dict(tags)
        self._watches = {budget.name: BudgetWatch() for budget in budgets}
        self._points: list[Point] = []
        self.statuses: tuple[BudgetStatus, ...] = ()

    def evaluate(self, query: FleetQuery) -> None:
        """See `FleetCheck.evaluate`."""
        statuses = tuple(fleet_budget(query, budget) for budget in self._budgets)
        self.statuses = statuses
        for status in statuses:
            flags, _ = self._watches[status.budget.name].take(status)
            self._points.append(budget_point(status, flags, self._tags))

    def faults(self) -> list[Fault]:
        """Return nothing: budgets have rules of their own."""
        return []

    def points(self) -> list[Point]:
        """Return and remove the rows of `budget`."""
        points, self._points = self._points, []
        return points

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the conditions of each budget."""
        return {
            budget.name: [_identity(budget), self._watches[budget.name].document()]
            for budget in self._budgets
        }

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state of the budgets that are unchanged."""
        for budget in self._budgets:
            identity, watch = document.get(budget.name, (None, None))
            if identity == _identity(budget):
                self._watches[budget.name] = BudgetWatch.restore(watch)


def _identity(budget: FleetBudgetConfig) -> dict[str, Any]:
    return budget.model_dump(mode="json")


def local_budget(budget: FleetBudgetConfig) -> BudgetConfig:
    """Return a budget of the fleet without its labels."""
    return BudgetConfig.model_validate(budget.model_dump(exclude={"labels"}))


def fleet_budget(query: FleetQuery, budget: FleetBudgetConfig) -> BudgetStatus:
    """Return the status of a budget: the cost of all devices with its labels.

    Raises:
        DeliveryError: The database did not answer.
        PartialAnswerError: It answered in part.
    """
    end_ns = (query.now_ns - ARRIVED_NS) // HOUR_NS * HOUR_NS
    period = period_at(budget.period, budget.timezone, end_ns - 1)
    since_ns = min(period.start_ns, end_ns - HISTORY_HOURS * HOUR_NS)
    with query.over(since_ns, end_ns, HOUR_S, budget.labels) as answers:
        found = {one.currency: one for one in fleet_forecast(answers, period, budget.timezone)}
    own = found.pop(budget.currency, None)
    return BudgetStatus(
        local_budget(budget),
        period,
        end_ns,
        spent=own.spent if own else 0.0,
        coverage=(own.coverage or 0.0) if own else 0.0,
        remaining=own.remaining if own else None,
        note="" if own and own.remaining else _NO_HISTORY,
        foreign={currency: one.spent for currency, one in found.items()},
    )
