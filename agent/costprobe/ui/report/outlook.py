"""Budget forecasts of a report."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from costprobe.core.periods import local_time
from costprobe.core.units import percent
from costprobe.spend.budget import BudgetStatus
from costprobe.ui.report.model import Outlook
from costprobe.ui.report.spend import rounded


def outlook_of(status: BudgetStatus) -> Outlook:
    """Convert a budget status for the report."""
    budget, remaining = status.budget, status.remaining
    starts = local_time(status.period.start_ns, ZoneInfo(budget.timezone))
    notes = [f"coverage {percent(status.coverage)} of the elapsed time"]
    if remaining is not None:
        notes.insert(0, f"{remaining.method} from {remaining.hours:,} h")
    return Outlook(
        name=budget.name,
        currency=budget.currency,
        period=f"{budget.period} from {starts:%Y-%m-%d}",
        planned=rounded(status.amount),
        spent=rounded(status.spent),
        expected=None if status.expected is None else rounded(status.expected),
        low=None if status.low is None else rounded(status.low),
        high=None if status.high is None else rounded(status.high),
        method="; ".join([*notes, *filter(None, [status.note])]),
    )
