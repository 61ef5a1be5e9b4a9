"""The report as one self-contained page of HTML, to be opened and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from costprobe import __version__
from costprobe.core.money_text import money
from costprobe.core.printable import one_line
from costprobe.ui import hosted_apis
from costprobe.ui.report import words
from costprobe.ui.report.charts import Mark, bar_chart, line_chart
from costprobe.ui.report.model import Report, ReportedChange, Trend
from costprobe.ui.report.spend import Period
from costprobe.ui.report.trends import step_ns
from costprobe.ui.savings import held_out_words, load_words
from costprobe.ui.text import per_million_tokens

TEMPLATES: Final = Path(__file__).parent / "templates"
MAX_MARKS: Final = 12
# Faults and anomalies are only listed, because they would hide cost changes on a chart.
_MARKED: Final = ("drift", "price", "annotation", "software")


def page(report: Report) -> str:
    """Format a report as HTML."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = _printable
    environment.finalize = _printable
    numbers = {id(change): number for number, change in enumerate(report.changes, 1)}
    return environment.get_template("report.html").render(
        report=report,
        words=words,
        money=money,
        version=__version__,
        headline=words.headline(report),
        per_million_tokens=per_million_tokens,
        spend_charts=[_spend_chart(report, index) for index in range(len(report.spend))],
        trend_charts=[
            _trend_chart(report, index, trend, numbers) for index, trend in enumerate(report.trends)
        ],
        load_words=load_words,
        held_out_words=held_out_words,
        hosted_apis=hosted_apis,
    )


def _printable(value: Any) -> Any:  # noqa: ANN401 - what a template puts out
    """Replace control characters in texts."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return one_line(value)
    return value


def _spend_chart(report: Report, index: int) -> Markup:
    spend = report.spend[index]

    def text(value: float) -> str:
        return money(value, spend.currency)

    span = (report.since_ns, report.until_ns)
    title = f"Spend by day in {spend.currency}"
    return Markup(bar_chart(f"spend{index}", title, spend.by_day, span, text))  # noqa: S704 - made of numbers and escaped text


def _trend_chart(report: Report, index: int, trend: Trend, numbers: dict[int, int]) -> Markup:
    def text(value: float) -> str:
        return money(value, trend.currency)

    span = (report.since_ns, report.until_ns)
    drawn = line_chart(
        f"trend{index}",
        f"Cost of 1,000 inferences of {trend.name}",
        trend.buckets,
        span=span,
        step_ns=step_ns(Period(*span)),
        value_text=text,
        marks=_marks(report, trend, numbers),
    )
    return Markup(drawn)  # noqa: S704 - as above


def _marks(report: Report, trend: Trend, numbers: dict[int, int]) -> list[Mark]:
    marks = [
        Mark(numbers[id(change)], change.since_ns, change.kind, change.title)
        for change in report.changes
        if change.kind in _MARKED
        and change.since_ns >= report.since_ns
        and _concerns(change, trend)
    ]
    return marks[:MAX_MARKS]


def _concerns(change: ReportedChange, trend: Trend) -> bool:
    """Return whether an event concerns this model or its device."""
    label = f"{trend.subject} on {trend.device}" if trend.device else trend.subject
    return change.subject in (label, trend.subject, trend.device)
