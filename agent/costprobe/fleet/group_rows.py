"""The rows of the members of groups: sums over cells of a period, and what is not known of a member.

A cell is the period, a day or an hour. Hours are asked for only of days in which a group was not
whole: of all others the sums are enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from costprobe.adapters.databases.question import Question
from costprobe.core.periods import DAY_NS, HOUR_NS, WEEK_NS, iso
from costprobe.core.records import TOGETHER, natural
from costprobe.core.schema import GROUP_TAGS, SCHEMA
from costprobe.core.units import HOUR_S, counted
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod

GROUP, ROLE = GROUP_TAGS
# A complete replica has unit costs of its own; the other roles are parts.
WHOLE: Final = "all"
# An hour, or a period, counts if windows with a cost cover all of it, but for so much: the rounding of edges.
_EDGES_S: Final = 36.0
# Windows may cover so much more: a first one that began before, and what Prometheus extrapolates.
_BEYOND_S: Final = 360.0
_MEMBER: Final = (*GROUP_TAGS, "host", "service")
_OF_COST: Final = {"basis": "serving", "served_model": ""}
COUNTS: Final = ("requests", "tokens_in", "tokens_out")
COUNTED: Final = (*COUNTS, "errors", "cached_tokens")
ROWS_OF: Final = "rows of "
# Of each bound of a service level: the requests that were timed, and those within it.
JUDGED: Final = ("requests", "requests_met")
SLO: Final = "slo."
_DAY_H: Final = 24
# More runs of days are one.
_RUNS_MAX: Final = 4
# Questions at a time, whose answers are in memory together.
_AT_ONCE: Final = 6
# VictoriaMetrics refuses a query of more than 16 KiB; an escaped character is three.
_HOSTS_CHARS_MAX: Final = 4000
Span = tuple[FleetAnswers, Sequence[str], Sequence[str]]


class Member(NamedTuple):
    """A service of a host that belongs to a group."""

    role: str
    host: str
    service: str

    def __str__(self) -> str:
        return f"{self.host} ({self.role})"


@dataclass(slots=True)
class Cell:
    """The rows of a member in some hours: sums by field; those of money by currency."""

    hours: int
    sums: dict[str, float] = field(default_factory=dict)
    money: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def is_covered(self) -> bool:
        """Whether windows with a cost cover all of it."""
        return -_EDGES_S <= self._beyond_s <= _BEYOND_S

    @property
    def is_exceeded(self) -> bool:
        """Whether they are longer than it."""
        return self._beyond_s > _BEYOND_S

    @property
    def _beyond_s(self) -> float:
        return self.sums.get("window_s", 0.0) - self.hours * HOUR_S


@dataclass(slots=True)
class Book:
    """The rows of a group by the end of a cell, UTC in ns, and member; and the devices of each.

    Attributes:
        length_h: Hours of a new cell: 1, those of a day, or of the period.
        hours: The cells.
        devices: Devices by member.
    """

    length_h: int
    hours: dict[int, dict[Member, Cell]] = field(default_factory=dict)
    devices: dict[Member, set[str]] = field(default_factory=lambda: defaultdict(set))

    def cell(self, end_ns: int, member: Member) -> Cell:
        """Return the cell of a member that ends at a UTC ns; a new one, if there is none."""
        cells = self.hours.setdefault(end_ns, {})
        found = cells.get(member)
        if found is None:
            found = cells[member] = Cell(self.length_h)
        return found

    def replace(self, ends_ns: Iterable[int], finer: Book) -> None:
        """Take the cells of another book in place of those that end at these UTC ns."""
        if finer is self:
            return
        for end_ns in ends_ns:
            self.hours.pop(end_ns, None)
        self.hours |= finer.hours
        for member, devices in finer.devices.items():
            self.devices[member] |= devices

    @property
    def is_whole(self) -> bool:
        """Whether each member has a cost all the time, in one currency."""
        cells = [cell for cells in self.hours.values() for cell in cells.values()]
        return all(cell.is_covered and len(cell.money) == 1 for cell in cells)

    def expect(self, members: Iterable[Member]) -> None:
        """Need the parts among these, also those without a row in the period."""
        for member in members:
            if member.role != WHOLE:
                self.devices.setdefault(member, set())

    @property
    def parts(self) -> set[Member]:
        """The members that a whole hour needs; one that changed its role is one of each."""
        return {member for member in self.devices if member.role != WHOLE}

    def whole(self) -> dict[int, dict[Member, Cell]]:
        """Return the hours in which the group was whole, with the members that count in them.

        A replica that is complete counts in its own hours. A service that had several roles in
        the period has to have one of them.
        """
        needed = {member[1:] for member in self.parts}
        found = {}
        for end_ns, cells in self.hours.items():
            covered = {member: cell for member, cell in cells.items() if cell.is_covered}
            if covered and needed <= {member[1:] for member in covered}:
                found[end_ns] = covered
        return found

    @property
    def currencies(self) -> list[str]:
        """The currencies in which members are paid; at least one."""
        paid = (cell.money for cells in self.hours.values() for cell in cells.values())
        return sorted({currency for money in paid for currency in money}) or [""]

    def gaps(self, period: FleetPeriod, newest_ns: Mapping[Member, int]) -> Iterator[str]:
        """Yield which members lack hours, and whose clock is ahead."""
        asked = (period.end_ns - period.start_ns) // HOUR_NS
        lacking: dict[str, list[str]] = defaultdict(list)
        covering: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for end_ns, cells in self.hours.items():
            for other, cell in cells.items():
                if cell.is_covered:
                    covering[other.host, other.service][end_ns] = cell.hours
        for member in sorted(self.devices, key=lambda one: natural(*one)):
            covered = covering[member.host, member.service]
            last_ns = newest_ns.get(member, 0)
            is_silent = member not in self.hours.get(period.end_ns, {})
            if last_ns > period.now_ns + ARRIVED_NS:
                yield (
                    f"{member}: its newest row is of {iso(last_ns)}, which is to come: correct the"
                    " clock of the host; its rows count in other hours than they should"
                )
            if (covered_h := sum(covered.values())) < asked:
                text = f"a cost in {covered_h:,} of {counted(asked, 'hour')}"
                if period.end_ns not in covered and 0 < last_ns <= period.end_ns:
                    text += f"; {'silent since' if is_silent else 'newest row'} {iso(last_ns)}"
                if not covered and any(
                    cells[member].is_exceeded for cells in self.hours.values() if member in cells
                ):
                    text += (
                        "; its windows are longer than the hours that they end in: set window to a"
                        " part of an hour, such as 5m, and give no two hosts one name"
                    )
                lacking[text].append(str(member))
        for text, members in lacking.items():
            yield f"{', '.join(members)}: {text}"

    def assumptions(self, devices: Collection[tuple[str, str]]) -> Iterator[str]:
        """Yield which members are paid at an assumed price.

        Args:
            devices: Those with one, by host and name.
        """
        found = [
            str(member)
            for member in sorted(self.devices, key=lambda one: natural(*one))
            if any((member.host, device) in devices for device in self.devices[member])
        ]
        if found:
            who = "all members" if len(found) == len(self.devices) else ", ".join(found)
            yield f"{who}: at an assumed price; write a [[price]] on these hosts"


def books_of(
    answers: FleetAnswers,
    fields: Sequence[str],
    known_of: Sequence[str],
    *,
    hours: int,
    hosts: tuple[str, ...] = (),
) -> dict[str, Book]:
    """Return the rows of all groups by name.

    Args:
        answers: The database, and the period.
        fields: Of `cost` and of `serving`.
        known_of: Those of which the number of rows is counted, under `ROWS_OF`.
        hours: Length of a cell: 1, or that of the period.
        hosts: Only members on these; empty for all.
    """
    paid = Question(
        "cost",
        "cost_total",
        "sum",
        by=(*_MEMBER, "currency", "device"),
        where=_OF_COST,
        present=(GROUP,),
        hosts=hosts,
        every_s=int(hours * HOUR_S),
    )
    books: dict[str, Book] = {}
    for (group, role, host, service, currency, devices), value, end_ns in answers.rows(paid):
        member = Member(role, host, service)
        book = books.setdefault(group, Book(hours))
        money = book.cell(end_ns, member).money.setdefault(currency, {})
        money["cost_total"] = money.get("cost_total", 0.0) + value
        book.devices[member].update(devices.split(TOGETHER))
    if not books:
        return {}
    questions = {
        name: _question(paid, name) for name in ("window_s", *fields) if name != "cost_total"
    }
    questions |= {
        ROWS_OF + name: replace(_question(paid, name), over_time="count", by=_MEMBER)
        for name in known_of
    }
    if known_of:
        levels = replace(paid, measurement="slo", by=(*_MEMBER, "bound"), where={})
        questions |= {f"{SLO}{name}": replace(levels, field=name) for name in JUDGED}
    while questions:
        names = [*questions][:_AT_ONCE]
        for name, rows in zip(
            names, answers.rows_of_each(*(questions.pop(name) for name in names)), strict=True
        ):
            # The rows of a series follow each other.
            for (group, role, host, service, *more), own in groupby(rows, itemgetter(0)):
                member = Member(role, host, service)
                if group not in books or member not in books[group].devices:
                    continue
                for _, value, end_ns in own:
                    cell = books[group].cell(end_ns, member)
                    if name.startswith(SLO):
                        cell.sums[f"{name} {more[0]}"] = value
                    else:
                        sums = cell.money.setdefault(more[0], {}) if more else cell.sums
                        sums[name] = value
        answers.forget()
    return books


def _question(paid: Question, name: str) -> Question:
    """Return the question for the sum of another field, by currency if it is money."""
    if name.startswith("cost_"):
        return replace(paid, field=name, by=(*_MEMBER, "currency"))
    if name in SCHEMA["cost"].fields and name not in COUNTED:
        return replace(paid, field=name, by=_MEMBER)
    # Parts have no counts beside their cost.
    where = {"served_model": ""}
    return replace(paid, measurement="serving", field=name, by=_MEMBER, where=where)


def left_out_of(answers: FleetAnswers, books: Mapping[str, Book]) -> dict[str, dict[Member, str]]:
    """Return the members of each group without the labels that rows must have, and that they are left out."""
    if not answers.labels:
        return {}
    question = Question("cost", "cost_total", "count", "count", by=_MEMBER, where=_OF_COST)
    found: dict[str, dict[Member, str]] = defaultdict(dict)
    labels = " and ".join(f"{name}={value}" for name, value in answers.labels.items())
    for group, role, host, service in answers.over(answers.period, {}).groups(question):
        member = Member(role, host, service)
        if group in books and member not in books[group].devices:
            found[group][member] = f"{member}: left out, as a member without {labels}"
    return found


def assumed_devices(answers: FleetAnswers) -> set[tuple[str, str]]:
    """Return the devices whose price is assumed, by host and name."""
    question = Question("device", "price_assumed", "share", "max", by=("host", "device"))
    return {(host, device) for host, device in answers.over(answers.period, {}).groups(question)}


def newest_rows(answers: FleetAnswers) -> dict[str, dict[Member, int]]:
    """Return the time of the newest row of each member by group, UTC in ns.

    Also of a row that is to come, and of members that were silent in the period, for a day: one that was removed
    for good is no longer needed then.
    """
    question = Question(
        "cost", "cost_total", "newest", by=_MEMBER, where=_OF_COST, present=(GROUP,)
    )
    period = answers.period
    before = period._replace(start_ns=period.start_ns - DAY_NS, end_ns=period.start_ns)
    ahead = period._replace(start_ns=period.end_ns, end_ns=period.now_ns + WEEK_NS)
    found: dict[str, dict[Member, int]] = defaultdict(dict)
    for span in (answers.over(before), answers, answers.over(ahead)):
        for (group, role, host, service), time_s in span.groups(question).items():
            found[group][Member(role, host, service)] = int(time_s * 1e9)
    return found


def refine(periods: Sequence[dict[str, Book]], spans: Sequence[Span], names: set[str]) -> None:
    """Replace the rows of some groups in each period by those of days, and of hours where a day is not enough.

    A day is enough if each member has a cost all the time in it, or none. Cells of all periods are alike.
    """
    asked_h = length_h_of(spans[0][0])
    is_of_days = asked_h > _DAY_H and not asked_h % _DAY_H
    _divide(periods, spans, names, hours=_DAY_H if is_of_days else 1)
    # By the ns from the end of a day to that of the period, the groups that a day is not enough for.
    partial: dict[int, set[str]] = defaultdict(set)
    for each, (answers, *_) in zip(periods, spans, strict=True) if is_of_days else ():
        for name in names & each.keys():
            for end_ns, cells in each[name].hours.items():
                if not all(cell.is_covered and len(cell.money) == 1 for cell in cells.values()):
                    partial[answers.period.end_ns - end_ns].add(name)
    for days in _runs(sorted(partial)):
        found = set().union(*(partial[ago_ns] for ago_ns in days))
        parts = [{name: each[name] for name in found & each.keys()} for each in periods]
        within = [
            (answers.part(days[-1] + DAY_NS, days[0]), fields, known_of)
            for answers, fields, known_of in spans
        ]
        _divide(parts, within, found, hours=1)
        for each, part, (answers, *_) in zip(periods, parts, spans, strict=True):
            for name, book in part.items():
                each[name].replace([answers.period.end_ns - ago_ns for ago_ns in days], book)


def _runs(days: Sequence[int]) -> list[list[int]]:
    """Join days that follow each other; many runs are one, from the first day to the last."""
    found: list[list[int]] = []
    for ago_ns in days:
        if found and ago_ns == found[-1][-1] + DAY_NS:
            found[-1].append(ago_ns)
        else:
            found.append([ago_ns])
    if len(found) <= _RUNS_MAX:
        return found
    return [list(range(days[0], days[-1] + DAY_NS, DAY_NS))]


def _divide(
    periods: Sequence[dict[str, Book]], spans: Sequence[Span], names: set[str], *, hours: int
) -> None:
    """Replace the rows of some groups in each period by those in cells of some hours."""
    if not names:
        return
    members = [m for each in periods for name in names & each.keys() for m in each[name].devices]
    hosts = tuple(sorted({member.host for member in members}))
    if sum(map(len, hosts)) > _HOSTS_CHARS_MAX:
        hosts = ()
    for each, span in zip(periods, spans, strict=True):
        divided_up = books_of(*span, hours=hours, hosts=hosts)
        each.update({name: divided_up[name] for name in names & divided_up.keys()})


def length_h_of(answers: FleetAnswers) -> int:
    """Return the whole hours of a period."""
    return (answers.period.end_ns - answers.period.start_ns) // HOUR_NS
