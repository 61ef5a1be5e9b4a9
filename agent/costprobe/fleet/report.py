"""The content of a fleet's report: spend with its change, idle time, unit costs and hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from costprobe.adapters.databases.question import Question
from costprobe.fleet.answers import FleetAnswers, FleetPeriod, started
from costprobe.fleet.hosts import HostState, fleet_status
from costprobe.fleet.spend import (
    DeviceSums,
    FleetSpend,
    SpendByKey,
    coverage_of,
    device_sums,
    fleet_spend,
    largest_first,
    only,
    presence,
    spend_parts,
    with_rest,
)
from costprobe.fleet.unit_costs import FleetUnitCost, fleet_unit_costs

# A period that rows cover less is not compared with another.
COMPARED_SHARE: Final = 0.9
_DIVIDED: Final = ("service", "model", "tenant")


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The figures of a fleet in a period.

    Attributes:
        period: The period.
        total: What all devices cost.
        before: The same of the period of equal length before; None if rows cover less than
            COMPARED_SHARE of either, so that they are not compared.
        divided: Spend by service, model and tenant, where there are any, and by the report's label.
        gpu_models: Spend by GPU model.
        hosts: Spend by host, the most idle cost first.
        unit_costs: Cost per inference and per million tokens by model.
        states: The hosts, silent ones first.
        problems: Why figures are partial, one sentence each.
    """

    period: FleetPeriod
    total: FleetSpend
    before: FleetSpend | None
    divided: tuple[tuple[str, SpendByKey], ...]
    gpu_models: tuple[FleetSpend, ...]
    hosts: tuple[FleetSpend, ...]
    unit_costs: tuple[FleetUnitCost, ...]
    states: tuple[HostState, ...]
    problems: tuple[str, ...]


def fleet_report(answers: FleetAnswers, silent_after_s: float, label: str = "") -> FleetReport:
    """Return the figures of a fleet.

    Args:
        answers: The database, and the period.
        silent_after_s: A host without a row for so long, in s, is silent.
        label: Label to divide the spend by; empty for none.

    Raises:
        DeliveryError: The database did not answer.
    """
    unit_costs = started(fleet_unit_costs, answers, "model")
    spent = started(_by_host_and_model, answers)
    states = started(fleet_status, answers, silent_after_s)
    parts = [(key, started(spend_parts, answers, key)) for key in _DIVIDED]
    labelled = [(label, started(fleet_spend, answers, label))] if label else []
    hosts, by_model = spent.result()
    by_host = largest_first(hosts.spend(answers))
    total = only(hosts.over().spend(answers))
    before = _before(answers) if _is_covered(total.coverage) else None
    divided = [(key, with_rest(total, found.result())) for key, found in parts]
    divided += [(key, found.result()) for key, found in labelled]
    return FleetReport(
        period=answers.period,
        total=total,
        before=before,
        divided=tuple((key, spend) for key, spend in divided if spend.parts),
        gpu_models=largest_first(by_model.spend(answers)),
        hosts=tuple(sorted(by_host, key=lambda host: -idle_cost(host))),
        unit_costs=tuple(unit_costs.result()),
        states=tuple(states.result()),
        problems=answers.problems,
    )


def _by_host_and_model(answers: FleetAnswers) -> tuple[DeviceSums, DeviceSums]:
    """Return the sums of the devices of each host, and of each GPU model."""
    # A device may have had two models.
    of_hosts = Question("device", "cost", "count", "count", by=("host",))
    devices = started(answers.groups, of_hosts)
    sums = device_sums(answers, ("host", "model"))
    return sums.over(0)._replace(devices=devices.result()), sums.over(1)


def idle_cost(spend: FleetSpend) -> float:
    """Return the cost of idle time in the currency of the largest cost; 0 if it is unknown."""
    largest = spend.costs[0] if spend.costs else None
    return largest.cost * largest.idle_share if largest and largest.idle_share else 0.0


def _before(answers: FleetAnswers) -> FleetSpend | None:
    """Return the spend of the period of equal length before; None if its rows cover too little."""
    period = answers.period
    length_ns = period.end_ns - period.start_ns
    earlier = answers.over(
        period._replace(start_ns=period.start_ns - length_ns, end_ns=period.start_ns)
    )
    covered, devices = earlier.each(*presence(()))
    if not _is_covered(coverage_of(earlier, covered.get(()), devices.get(()))):
        return None
    return fleet_spend(earlier, "").total


def _is_covered(coverage: float | None) -> bool:
    return coverage is not None and coverage >= COMPARED_SHARE
