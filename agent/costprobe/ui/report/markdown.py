"""The report as Markdown, for a wiki, a merge request or a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from costprobe.core.money_text import money
from costprobe.core.printable import one_line
from costprobe.ui import hosted_apis
from costprobe.ui.report.model import Report
from costprobe.ui.report.words import (
    BASES,
    PARTS,
    cause_text,
    change_pct,
    cost_of,
    electricity,
    energy,
    figure,
    headline,
    minute,
    period,
    share,
    spend_change,
)
from costprobe.ui.savings import held_out_words, load_words
from costprobe.ui.text import per_million_tokens

_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown(report: Report) -> str:
    """Format a report as GitHub-flavoured Markdown; text from outside is escaped."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str) -> str:
    """Escape Markdown and HTML in a text, and put it on one line."""
    return _MARKS.sub(r"\\\1", " ".join(one_line(text).split()))


def _lines(report: Report) -> Iterator[str]:
    yield f"# Cost of inference on {escaped(report.host)}"
    yield ""
    yield f"{period(report)}. All times are UTC."
    yield ""
    yield from (f"- {escaped(line)}" for line in headline(report))
    yield from _spend(report)
    yield from _models(report)
    yield from _trends(report)
    yield from _changes(report)
    yield from _savings(report)
    yield from _hosting(report)
    yield from _outlooks(report)
    yield from _prices(report)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"


def _spend(report: Report) -> Iterator[str]:
    yield from ("", "## Spend")
    if not report.spend:
        yield from ("", "No device cost in this period.")
    for spend in report.spend:
        rows = [("all", spend.total), *((part.name, part.amount) for part in spend.by_device)]
        yield from _table(
            ("device", spend.currency), [(name, money(of, spend.currency)) for name, of in rows]
        )
        if spend.by_use:
            yield from _table(
                ("service", "for", spend.currency),
                [
                    (
                        use.service or "-",
                        PARTS.get(use.part, use.part),
                        money(use.amount, spend.currency),
                    )
                    for use in spend.by_use
                ],
            )
        if spend.by_label:
            yield from _table(
                (escaped(report.label), spend.currency),
                [
                    (part.name or "none", money(part.amount, spend.currency))
                    for part in spend.by_label
                ],
            )
        yield ""
        yield f"Coverage: {share(spend.coverage)} of the time of these devices."
        if moved := spend_change(spend):
            yield ""
            yield f"Change: {moved}."
    if drawn := energy(report.drawn):
        yield ""
        yield f"Energy of the devices: {drawn}."


def _models(report: Report) -> Iterator[str]:
    yield from ("", "## Cost per inference by model")
    for group in report.models:
        yield ""
        yield f"{escaped(group.currency)}, {BASES[group.basis]}:"
        yield from _table(
            ("model", "per 1,000", "p50 ms", "p99 ms", "J", "samples"),
            [
                (
                    placed.candidate.name,
                    cost_of(placed.candidate),
                    *(
                        figure(None if of is None else of.value)
                        for of in (
                            placed.candidate.latency_p50_ms,
                            placed.candidate.latency_p99_ms,
                            placed.candidate.energy_per_inference_j,
                        )
                    ),
                    str(placed.candidate.samples),
                )
                for placed in group.placed
            ],
        )
        yield ""
        yield from (
            f"- {escaped(placed.candidate.name)}: per million tokens {words}"
            for placed in group.placed
            if (words := per_million_tokens(placed.candidate))
        )
    if not report.models:
        yield from ("", "No model has enough samples in this period.")
    if report.left_out:
        yield ""
        yield from (
            f"- {escaped(rejected.candidate.name)}: {escaped(rejected.reason)}"
            for rejected in report.left_out
        )


def _trends(report: Report) -> Iterator[str]:
    if report.trends:
        yield from ("", "## Trend")
        yield from _table(
            ("model", "basis", "per 1,000", "preceding period", "change", "lowest", "highest"),
            [
                (
                    trend.name,
                    trend.basis,
                    money(trend.now, trend.currency),
                    "-" if trend.before is None else money(trend.before, trend.currency),
                    change_pct(trend.now, trend.before),
                    money(min(step.value for step in trend.buckets), trend.currency),
                    money(max(step.value for step in trend.buckets), trend.currency),
                )
                for trend in report.trends
            ],
        )


def _changes(report: Report) -> Iterator[str]:
    yield from ("", "## Changes and causes")
    if not report.changes:
        yield from ("", "No event.")
        return
    yield from _table(
        ("time", "kind", "subject", "change", "cause"),
        [
            (
                minute(change.time_ns),
                change.kind,
                change.subject,
                change.title + (f" ({change.times} times)" if change.times > 1 else ""),
                cause_text(change) or "-",
            )
            for change in report.changes
        ],
    )
    if report.more_changes:
        yield from ("", f"{report.more_changes} less important events are not listed.")


def _savings(report: Report) -> Iterator[str]:
    yield from ("", "## Possible savings")
    found = [(answer, answer.best) for answer in report.savings if answer.best is not None]
    if not found:
        yield from ("", "None.")
    for number, (answer, supply) in enumerate(found, 1):
        saving = money(supply.saving_per_month, answer.currency)
        action = escaped(f"{answer.workload.name}: {supply.action}")
        yield from ("", f"{number}. **{action}**, {escaped(saving)} a month")
        yield f"   - load: {escaped(load_words(answer.workload))}"
        if supply.held_out is not None:
            yield f"   - {escaped(held_out_words(supply.held_out))}"
        yield from (f"   - if {escaped(line)}" for line in supply.assumptions)


def _hosting(report: Report) -> Iterator[str]:
    if report.hosting:
        yield from ("", "## Self-host or API")
        for choice in report.hosting:
            yield from ("", f"{escaped(hosted_apis.caption(choice))}:")
            if rows := hosted_apis.table(choice):
                yield from _table(hosted_apis.HEADS, rows)
            yield ""
            yield from (f"- {escaped(line)}" for line in hosted_apis.remarks(choice))
        yield from ("", hosted_apis.NOTE)


def _outlooks(report: Report) -> Iterator[str]:
    if report.outlooks:
        yield from ("", "## Forecast")
        yield from _table(
            ("budget", "period", "planned", "spent", "expected", "80 % interval", "method"),
            [
                (
                    outlook.name,
                    outlook.period,
                    money(outlook.planned, outlook.currency),
                    money(outlook.spent, outlook.currency),
                    "-" if outlook.expected is None else money(outlook.expected, outlook.currency),
                    "-"
                    if outlook.low is None or outlook.high is None
                    else f"{money(outlook.low, outlook.currency)}"
                    f" to {money(outlook.high, outlook.currency)}",
                    outlook.method,
                )
                for outlook in report.outlooks
            ],
        )


def _prices(report: Report) -> Iterator[str]:
    yield from ("", "## Prices")
    if not report.prices:
        yield from ("", "No device has a price.")
        return
    yield from _table(
        ("device", "model", "plan", "per hour", "electricity per kWh", "source"),
        [
            (
                price.device,
                price.model,
                price.plan.replace("_", " ") + (" (stale)" if price.is_stale else ""),
                money(price.per_hour, price.currency),
                electricity(price),
                price.source,
            )
            for price in report.prices
        ],
    )
