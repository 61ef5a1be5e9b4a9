"""The report as Markdown, for a wiki, a merge request or a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from costprobe.core.money import money
from costprobe.core.units import counted
from costprobe.ui import hosted_apis, key_costs
from costprobe.ui.report.model import Report
from costprobe.ui.report.summary import (
    FirstPage,
    first_page,
    model_groups,
    price_groups,
    saving_groups,
    token_words,
    trend_groups,
)
from costprobe.ui.report.words import (
    budget_cells,
    budget_method,
    cause_text,
    change_pct,
    days,
    each,
    electricity,
    minute,
    period,
)
from costprobe.ui.text import BASES, devices_text, escaped, figure


def markdown(report: Report) -> str:
    """Format a report as GitHub-flavoured Markdown; text from outside is escaped."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# Cost of inference on {escaped(report.host)}"
    yield ""
    yield f"{period(report)}. All times are UTC."
    yield from _first_page(report, first_page(report))
    yield from ("", "# Details")
    yield from _trends(report)
    yield from _changes(report)
    yield from _spend(report)
    yield from _tenants(report)
    yield from _models(report)
    yield from _savings(report)
    yield from _hosting(report)
    yield from _forecasts(report)
    yield from _prices(report)


def _first_page(report: Report, first: FirstPage) -> Iterator[str]:
    yield ""
    for figure_ in first.figures:
        remark = f" ({escaped(figure_.remark)})" if figure_.remark else ""
        yield f"- {figure_.name}: **{escaped(figure_.value)}**{remark}"
    yield from ("", "## What changed, and why", "")
    yield from (f"- {escaped(line)}" for line in first.changes)
    if not first.changes:
        yield "No lasting change of cost, and no change of price."
    yield from ("", "## What a unit costs now")
    heads = ("model or service", "on", "cost now", days(report), "7 days", "24 h")
    yield from _table(heads, first.units)
    yield from ("", "## Where the money goes")
    if report.spend:
        yield from _table(("for", "cost", "share"), first.money)
    else:
        yield from ("", "No device cost in this period.")
    yield from ("", "## What can be saved", "")
    yield from (f"- {escaped(line)}" for line in first.savings)
    if not first.savings:
        yield "Nothing; `costprobe savings` lists what is missing for an answer."
    yield from _budgets(report)
    if first.notes:
        yield ""
        yield from (f"- {escaped(line)}" for line in first.notes)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"


def _spend(report: Report) -> Iterator[str]:
    yield from ("", "## Spend by device")
    for spend in report.spend:
        yield from _table(
            ("device", spend.currency),
            [(part.name, money(part.amount, spend.currency)) for part in spend.by_device],
        )
        if spend.by_label:
            yield from _table(
                (escaped(report.label), spend.currency),
                [
                    (part.name or "none", money(part.amount, spend.currency))
                    for part in spend.by_label
                ],
            )


def _tenants(report: Report) -> Iterator[str]:
    if report.tenants:
        yield from ("", "## Cost of tenants")
    for allocation in report.tenants:
        yield from _table(("tenant", *key_costs.heads(allocation)), key_costs.table(allocation))


def _models(report: Report) -> Iterator[str]:
    yield from ("", "## Latency and energy by model")
    for currency, basis, rows in model_groups(report):
        yield ""
        yield f"{escaped(currency)}, {BASES[basis]}:"
        yield from _table(
            ("model", "on", "median cost", "p50 ms", "p99 ms", "J", "samples"),
            [
                (
                    one.name,
                    devices_text(one.devices),
                    each(one.cost, currency),
                    figure(one.latency_p50_ms),
                    figure(one.latency_p99_ms),
                    figure(one.energy_j),
                    f"{one.samples:,}",
                )
                for one in rows
            ],
        )
    if words := token_words(report):
        yield ""
        yield from (f"- {escaped(name)}: per million tokens {text}" for name, text in words)
    if not report.models:
        yield from ("", "No model has enough samples in this period.")
    if report.left_out:
        yield ""
        yield from (
            f"- {escaped(rejected.candidate.name)}: {escaped(rejected.reason)}"
            for rejected in report.left_out
        )


def _trends(report: Report) -> Iterator[str]:
    groups = trend_groups(report.trends, report.hardware)
    if groups:
        yield from ("", "## Cost of an inference over time")
        yield from _table(
            ("model", "on", "median", "preceding period", "change", "lowest step", "highest step"),
            [
                (
                    group.name,
                    devices_text(group.devices) or "as served",
                    group.price(group.now),
                    "-" if group.before is None else group.price(group.before),
                    change_pct(group.now, group.before),
                    group.price(min(values)),
                    group.price(max(values)),
                )
                for group in groups
                for values in [[step.value for one in group.members for step in one.buckets]]
            ],
        )


def _changes(report: Report) -> Iterator[str]:
    yield from ("", "## Changes and causes")
    if not report.changes:
        yield from ("", "No event.")
        return
    yield from _table(
        ("time", "kind", "change", "cause"),
        [
            (
                minute(change.time_ns),
                change.kind,
                change.title + (f" ({change.occurrences} times)" if change.occurrences > 1 else ""),
                cause_text(change) or "-",
            )
            for change in report.changes
        ],
    )
    if report.more_changes:
        yield from ("", f"Not listed: {counted(report.more_changes, 'less important event')}.")


def _savings(report: Report) -> Iterator[str]:
    found = saving_groups(report.savings)
    if found:
        yield from ("", "## Possible savings")
    for number, one in enumerate(found, 1):
        yield from ("", f"{number}. **{escaped(one.title)}**, {escaped(one.saving)}")
        yield from (f"   - {escaped(line)}" for line in one.facts)


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


def _budgets(report: Report) -> Iterator[str]:
    if report.budgets:
        heads = ("budget", "period", "planned", "spent", "expected", "80 % interval")
        yield from ("", "## Budgets")
        yield from _table(heads, map(budget_cells, report.budgets))


def _forecasts(report: Report) -> Iterator[str]:
    if report.budgets:
        yield from ("", "## How budgets are forecast", "")
        yield from (
            f"- {escaped(one.budget.name)}: {escaped(budget_method(one))}" for one in report.budgets
        )


def _prices(report: Report) -> Iterator[str]:
    yield from ("", "## Prices")
    if not report.prices:
        yield from ("", "No device has a price.")
        return
    yield from _table(
        ("devices", "model", "plan", "each per hour", "electricity per kWh", "source"),
        [
            (
                devices_text(names),
                price.model,
                price.plan.replace("_", " ") + (" (stale)" if price.stale else ""),
                money(price.price_rate_per_h, price.currency),
                electricity(price),
                price.source,
            )
            for price, names in price_groups(report.prices)
        ],
    )
