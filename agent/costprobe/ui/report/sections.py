"""The sections of a host's report, in the order of the questions: the first page, then the details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from markupsafe import Markup

from costprobe.core.money import PER_THOUSAND, SCALES, cents, cents_of_parts, money
from costprobe.core.records import TOGETHER, devices_text
from costprobe.core.units import counted
from costprobe.core.units import percent as share
from costprobe.ui import hosted_apis, key_costs
from costprobe.ui.amounts import si_column
from costprobe.ui.report.charts import Mark, bar_chart, line_chart
from costprobe.ui.report.formats import Chart, Document, Section
from costprobe.ui.report.gather import Period, step_ns
from costprobe.ui.report.model import Amount, Report, ReportedChange, Spend, Trend
from costprobe.ui.report.summary import (
    TrendGroup,
    key_figures,
    limits_of,
    main_changes,
    main_savings,
    price_groups,
    saving_groups,
    spend_parts,
    token_words,
    trend_groups,
    unit_rows,
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
    percent,
    period,
    spend_change,
)
from costprobe.ui.savings import bound_words
from costprobe.ui.tables import Table
from costprobe.ui.text import BASES, figure
from costprobe.unit_costs.compare import deviation_words, value_of

MAX_MARKS: Final = 12
# Faults and anomalies are only listed, because they would hide cost changes on a chart.
_MARKED: Final = ("drift", "price", "annotation", "software")


def host_report(report: Report) -> Document:
    """Return the report of a host."""
    groups = trend_groups(report.trends, report.hardware)
    *sections, last = _first(report, groups)
    return Document(
        title=f"Cost of inference on {report.host}",
        subtitle=f"{period(report)}. All times are UTC.",
        figures=list(key_figures(report)),
        first=[*sections, replace(last, notes=[*last.notes, *limits_of(report)])],
        details=list(_details(report, groups)),
        footer=f"Generated at {minute(report.made_ns)} UTC. Currencies are never converted.",
    )


def _first(report: Report, groups: Sequence[TrendGroup]) -> Iterator[Section]:
    yield _or_none(
        Section("What changed, and why", lines=list(main_changes(report, groups))),
        "No lasting change of cost, and no change of price.",
    )
    length = days(report)
    heads = (
        "model or service",
        "on",
        "cost now",
        f"over {length}",
        "since 7 d ago",
        "since 24 h ago",
    )
    rows = [row for group in report.overview.units for row in unit_rows(group, groups)]
    units = Section(
        "What a unit costs now",
        tables=[Table(heads, rows, text_columns=2)] if rows else (),
        notes=[
            (
                "Now: the last hour; of a model on several identical devices their median."
                f" Over {length}: an inference on the last day of the period against one on its first day;"
                " since 7 d and 24 h ago: the last hour against the same hour then. A device that deviates"
                " from the others is a line below them."
            )
        ]
        if rows
        else (),
    )
    yield _or_none(units, "No cost of an inference in the last week.")
    parts = [part for spend in report.spend for part in spend_parts(spend)]
    spent = [Table(("for", "cost", "share"), parts)] if parts else ()
    yield _or_none(
        Section("Where the money goes", tables=spent, is_half=True),
        "No device cost in this period.",
    )
    yield _or_none(
        Section("What can be saved", lines=list(main_savings(report)), is_half=True),
        f"{bound_words(report.overview.spending)}. costprobe savings lists what is missing for an answer.",
    )
    if report.budgets:
        heads = ("budget", "period", "planned", "spent", "expected", "80 % interval")
        rows = [budget_cells(status) for status in report.budgets]
        yield Section("Budgets", tables=[Table(heads, rows, text_columns=2)])


def _or_none(section: Section, words: str) -> Section:
    """Return a section, or one that says why it is empty."""
    return (
        section
        if section.lines or section.tables
        else Section(section.title, notes=[words], is_half=section.is_half)
    )


def _details(report: Report, groups: Sequence[TrendGroup]) -> Iterator[Section]:
    yield _trends(report, groups)
    yield _changes(report)
    yield _spend(report)
    if report.tenants:
        tables = [
            Table(("tenant", *key_costs.heads(one)), key_costs.table(one)) for one in report.tenants
        ]
        yield Section("Cost of tenants", tables=tables)
    yield _models(report)
    if found := saving_groups(report.savings):
        yield Section(
            "Possible savings",
            entries=found,
            notes=[
                (
                    "Each is the best supply of its workload; workloads on the same devices exclude each"
                    " other. All of them: costprobe savings --json."
                )
            ],
        )
    yield from _hosting(report)
    if report.budgets:
        lines = [f"{one.budget.name}: {budget_method(one)}" for one in report.budgets]
        as_of = f"As of {minute(report.made_ns)} UTC, when this report was generated."
        yield Section("How budgets are forecast", lines=lines, notes=[as_of])
    yield _prices(report)


def _trends(report: Report, groups: Sequence[TrendGroup]) -> Section:
    title = "Cost of an inference over time"
    if not groups:
        return Section(title, notes=["No cost per inference in this period."])
    numbers = {id(change): number for number, change in enumerate(report.changes, 1)}
    heads = ("model", "on", "median", "preceding period", "change", "lowest step", "highest step")
    rows = []
    for group in groups:
        values = [step.value for one in group.members for step in one.buckets]
        rows.append(
            (
                group.name,
                devices_text(group.devices) or "as served",
                group.price(group.now),
                "-" if group.before is None else group.price(group.before),
                change_pct(group.now, group.before),
                group.price(min(values)),
                group.price(max(values)),
            )
        )
    return Section(
        title,
        charts=[
            _trend_chart(report, index, group, numbers)
            for index, group in enumerate(groups)
            if group.before or group.now
        ],
        charted=[Table(heads, rows, text_columns=2)],
        chart_note=(
            "Thick: the median of identical devices; thin: each device. Axes do not begin at 0, percents"
            " are against the preceding period, and numbers are those of the changes below."
        ),
    )


def _trend_chart(report: Report, index: int, group: TrendGroup, numbers: dict[int, int]) -> Chart:
    """Return a chart: thick the median of identical devices, thin each device."""
    currency, per_step = group.members[0].currency, group.scale / PER_THOUSAND

    def text(value: float) -> str:
        return money(value * per_step, currency)

    on = f"on {devices_text(group.devices)}" if group.devices else "as served"
    moved = "" if group.moved_pct is None else f", {percent(group.moved_pct)} over {days(report)}"
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
    caption = f"{group.name} {on}: {group.price(group.now)}{moved}"
    return Chart(caption, Markup(drawn))  # noqa: S704 - made of numbers and escaped text


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
    if change.devices and not set(change.devices) & set(trend.device.split(TOGETHER)):
        return False
    return change.named in ("", trend.subject)


def _changes(report: Report) -> Section:
    rows = [
        (
            str(number),
            minute(change.time_ns),
            change.kind,
            change.title + (f" ({change.occurrences} times)" if change.occurrences > 1 else ""),
            cause_text(change) or "-",
        )
        for number, change in enumerate(report.changes, 1)
    ]
    notes = []
    if report.more_changes:
        more = counted(report.more_changes, "less important event")
        notes.append(f"Not listed: {more}; costprobe export --measurement event has all.")
    heads = ("no.", "time", "kind", "change", "cause")
    section = Section(
        "Changes and causes",
        tables=[Table(heads, rows, text_columns=len(heads))] if rows else (),
        notes=notes,
    )
    return _or_none(section, "No event.")


def _spend(report: Report) -> Section:
    charts, tables = [], []
    span = (report.since_ns, report.until_ns)
    for index, spend in enumerate(report.spend):
        currency, title = spend.currency, f"Spend by day in {spend.currency}"
        words = filter(None, (cents(spend.total, currency), spend_change(spend)))
        covered = f"coverage {share(spend.coverage)} of the time of the devices"
        drawn = bar_chart(
            f"spend{index}", title, spend.by_day, span, partial(money, currency=currency)
        )
        caption = f"{', '.join(words)}; {covered}"
        charts.append(Chart(caption, Markup(drawn), is_wide=True))  # noqa: S704 - as above
        tables.append(_parts("device", spend, spend.by_device))
        if spend.by_label:
            by = f"By {report.label}, in {currency}"
            tables.append(_parts(report.label, spend, spend.by_label, by))
    notes = [] if report.server is None else [key_costs.server_words(report.server)]
    section = Section("Spend by day and device", charts=charts, tables=tables, notes=notes)
    return _or_none(section, "No device cost in this period.")


def _parts(key: str, spend: Spend, parts: Sequence[Amount], caption: str = "") -> Table:
    costs = cents_of_parts([part.amount for part in parts], spend.total, spend.currency)
    rows = [
        (
            part.name or "none",
            cost,
            share(float(part.amount / spend.total)) if spend.total else "-",
        )
        for part, cost in zip(parts, costs, strict=True)
    ]
    return Table((key, spend.currency, "share"), rows, caption=caption)


def _models(report: Report) -> Section:
    tables = []
    for group in report.models:
        rows = [placed.candidate for placed in group.placed]
        joules, energies = si_column([value_of(one.energy_per_inference_j) for one in rows], "J")
        grams, emissions = si_column(
            [value_of(one.carbon_per_inference_g) for one in rows], "gCO2e"
        )
        cells = [
            (
                one.name,
                each(value_of(one.cost_per_inference), group.currency),
                figure(value_of(one.latency_p50_ms)),
                figure(value_of(one.latency_p99_ms)),
                energy,
                carbon,
                f"{one.samples:,}",
            )
            for one, energy, carbon in zip(rows, energies, emissions, strict=True)
        ]
        heads = ("model", "median cost", "p50 ms", "p99 ms", joules, grams, "samples")
        caption = (
            f"{group.currency}, {BASES[group.basis]}. Medians of samples without contention or throttling,"
            " newest software only."
        )
        tables.append(Table(heads, cells, caption=caption))
    lines = [f"{name}: per million tokens {text}." for name, text in token_words(report)]
    lines += [
        f"{placed.candidate.name}: {words}."
        for group in report.models
        for placed in group.placed
        if (words := deviation_words(placed.candidate))
    ]
    lines += [f"Not listed: {one.candidate.name}: {one.reason}" for one in report.left_out]
    notes = () if tables else ["No model has enough samples in this period."]
    return Section("Latency and energy by model", tables=tables, lines=lines, notes=notes)


def _hosting(report: Report) -> Iterator[Section]:
    if report.hosting:
        yield Section(
            "Self-host or API",
            tables=[
                Table(
                    hosted_apis.HEADS,
                    hosted_apis.table(choice),
                    caption=f"{hosted_apis.caption(choice)}:",
                )
                for choice in report.hosting
            ],
            lines=[line for choice in report.hosting for line in hosted_apis.remarks(choice)],
            notes=[hosted_apis.NOTE],
        )


def _prices(report: Report) -> Section:
    rows = [
        (
            devices_text(names),
            price.model,
            price.plan.replace("_", " ") + (" (stale)" if price.stale else ""),
            price.source,
            cents(price.price_rate_per_h, price.currency),
            electricity(price),
        )
        for price, names in price_groups(report.prices)
    ]
    heads = ("devices", "model", "plan", "source", "each per hour", "electricity per kWh")
    caption = "In force at the end of the period; earlier days use the plan of their day."
    tables = [Table(heads, rows, text_columns=4, caption=caption)] if rows else ()
    return _or_none(Section("Prices", tables=tables), "No device has a price.")
