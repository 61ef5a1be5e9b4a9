"""The overview that dashboard, report, terminal and Grafana's home dashboard begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.spend.evaluate import BudgetOverview
from costprobe.spend.now import present_power_w, spending
from costprobe.spend.query import Usual
from costprobe.ui.overview_records import Overview, main_change
from costprobe.unit_costs.now import unit_groups

_SEVERITIES: Final = ("critical", "warning", "info")
States = Mapping[str, tuple[Any, int]]


def overview(
    reader: StoreReader, config: Config, now_ns: int, months: Sequence[BudgetOverview] = ()
) -> Overview:
    """Return the overview at an instant.

    Args:
        reader: The store.
        config: The configuration: intervals of rows.
        now_ns: UTC in ns.
        months: The spend of this month of each currency, of the budgets that `host_budgets` returns; it
            takes longer than the rest, and a server keeps it for a minute.

    Raises:
        StoreError: The store cannot be read.
    """
    states = reader.states()
    status, _ = states.get("status", ({}, 0))
    return Overview(
        time_ns=now_ns,
        host=str((status or {}).get("host") or ""),
        spending=spending(
            reader, config.budget, Usual(config.telemetry.aggregate_s), now_ns, months
        ),
        power_w=present_power_w(reader, now_ns),
        units=unit_groups(reader, now_ns),
        change=main_change(reader, now_ns),
        firing=firing_alerts(states),
    )


def firing_alerts(states: States) -> Sequence[Mapping[str, Any]]:
    """Return the firing alerts that are not silenced, the worst and newest first."""
    document, _ = states.get("alerts", ({}, 0))
    silenced = set(document.get("silenced", ()))
    firing = [
        alert
        for alert in document.get("alerts", ())
        if alert.get("state") == "firing" and alert.get("id") not in silenced
    ]
    firing.sort(key=lambda alert: (_rank(alert), -alert.get("since_ns", 0)))
    return firing


def _rank(alert: Mapping[str, Any]) -> int:
    severity = alert.get("severity")
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
