"""What a fleet could save: the devices that each group could do without."""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers, Group
from costprobe.app.fleet.device_spend import device_tags, idle_shares
from costprobe.core.device_names import natural
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.fleet.consolidation import consolidation


@dataclass(frozen=True, slots=True)
class FleetSaving:
    """The devices of a group that are paid in one currency.

    Attributes:
        group: Values of the tags that the fleet is divided by.
        currency: ISO 4217 code.
        devices: Number of devices.
        utilization: Mean utilization, weighted by cost, 0 to 1.
        spare: Number of devices that the same work does not need at the target utilization.
        cost_per_month: Cost in the period, for a month of MONTH_H hours; gaps cost nothing.
        saving_per_month: Part of it for the spare devices.
    """

    group: Group
    currency: str
    devices: int
    utilization: float
    spare: int
    cost_per_month: float
    saving_per_month: float


def fleet_savings(answers: FleetAnswers, by: str, target: float) -> list[FleetSaving]:
    """Return what each group of devices could save, the largest saving first.

    Groups without a known utilization are left out.

    Args:
        answers: The database, and the period.
        by: `gpu_model`, `host`, or a label of hosts.
        target: Utilization that devices may reach, above 0 up to 1.

    Raises:
        DeliveryError: The database did not answer.
    """
    money = (*device_tags(by), "currency")
    cost = answers.groups(Question("device", "cost", "sum", by=money))
    devices = answers.groups(Question("device", "cost", "count", "count", by=money))
    idle = idle_shares(answers, money)
    period = answers.period
    months = MONTH_H * HOUR_S * NS_PER_S / (period.end_ns - period.start_ns)
    found = []
    for key, share in idle.items():
        counted = int(devices.get(key, 0))
        if counted and key in cost:
            per_month = cost[key] * months
            spare = consolidation(counted, 1 - share, target).spare
            found.append(
                FleetSaving(
                    group=key[:-1],
                    currency=key[-1],
                    devices=counted,
                    utilization=1 - share,
                    spare=spare,
                    cost_per_month=per_month,
                    saving_per_month=per_month * spare / counted,
                )
            )
    return sorted(found, key=lambda one: (-one.saving_per_month, natural(*one.group)))
