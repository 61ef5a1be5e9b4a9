"""The report as one self-contained page of HTML, to be opened and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from markupsafe import Markup

from costprobe import __version__
from costprobe.core.money import PER_THOUSAND, SCALES, money
from costprobe.core.units import counted
from costprobe.ui import hosted_apis, key_costs
from costprobe.ui.report import words
from costprobe.ui.report.charts import Mark, bar_chart, line_chart
from costprobe.ui.report.gather import step_ns
from costprobe.ui.report.grouping import (
    TrendGroup,
    model_groups,
    price_groups,
    saving_groups,
    token_words,
    trend_groups,
)
from costprobe.ui.report.model import Report, ReportedChange, Trend
from costprobe.ui.report.spend import Period
from costprobe.ui.report.summary import first_page
from costprobe.ui.text import BASES, devices_text, html_template

TEMPLATES: Final = Path(__file__).parent / "templates"
MAX_MARKS: Final = 12
# Faults and anomalies are only listed, because they would hide cost changes on a chart.
_MARKED: Final = ("drift", "price", "annotation", "software")


def page(report: Report) -> str:
    """Format a report as HTML."""
    numbers = {id(change): number for number, change in enumerate(report.changes, 1)}
    groups = trend_groups(report.trends, report.hardware)
    return html_template(TEMPLATES / "report.html").render(
        report=report,
        words=words,
        bases=BASES,
        money=money,
        version=__version__,
        first=first_page(report),
        spend_charts=[_spend_chart(report, index) for index in range(len(report.spend))],
        trends=[
            (group, _trend_chart(report, index, group, numbers))
            for index, group in enumerate(groups)
        ],
        models=model_groups(report),
        tokens=token_words(report),
        prices=price_groups(report.prices),
        devices_text=devices_text,
        counted=counted,
        savings=saving_groups(report.savings),
        hosted_apis=hosted_apis,
        key_costs=key_costs,
    )


def _spend_chart(report: Report, index: int) -> Markup:
    spend = report.spend[index]

    def text(value: float) -> str:
        return money(value, spend.currency)

    span = (report.since_ns, report.until_ns)
    title = f"Spend by day in {spend.currency}"
    return Markup(bar_chart(f"spend{index}", title, spend.by_day, span, text))  # noqa: S704 - made of numbers and escaped text


def _trend_chart(report: Report, index: int, group: TrendGroup, numbers: dict[int, int]) -> Markup:
    currency, per_step = group.members[0].currency, group.scale / PER_THOUSAND

    def text(value: float) -> str:
        return money(value * per_step, currency)

    span = (report.since_ns, report.until_ns)
    members = [trend.buckets for trend in group.members] if len(group.members) > 1 else []
    drawn = line_chart(
        f"trend{index}",
        f"Cost of {SCALES[group.scale] or 1} inferences of {group.name}",
        [group.buckets, *members],
        base=group.before or group.now,
        span=span,
        step_ns=step_ns(Period(*span)),
        value_text=text,
        marks=_marks(report, group, numbers),
    )
    return Markup(drawn)  # noqa: S704 - as above


def _marks(report: Report, group: TrendGroup, numbers: dict[int, int]) -> list[Mark]:
    marks = [
        Mark(numbers[id(change)], change.since_ns, change.kind, change.title)
        for change in report.changes
        if change.kind in _MARKED
        and change.since_ns >= report.since_ns
        and any(_concerns(change, trend) for trend in group.members)
    ]
    return marks[:MAX_MARKS]


def _concerns(change: ReportedChange, trend: Trend) -> bool:
    """Return whether an event concerns this model or its device."""
    if change.devices and not set(change.devices) & set(trend.device.split("+")):
        return False
    return change.named in ("", trend.subject)
