"""What a service of several hosts costs: its unit costs, from the rows of all its members.

A member is a service of one host with the tags `service_group` and `service_role`:

| role | what it is | counted of it |
| --- | --- | --- |
| all | a complete replica | requests, tokens |
| prefill | a pool of a disaggregated server | input tokens |
| decode | the other pool | requests, output tokens |
| worker | a part of another engine that spans hosts | requests, tokens, of the host with the url |

Both pools of a disaggregated server count each request: a proxy lets the prefill server generate
one token (`max_tokens` of 1), and sends the whole prompt to the decode server, too. Sources: the
proxy of vLLM's tests of NIXL, tests/v1/kv_connector/nixl_integration; SGLang 0.5.23,
srt/managers/tokenizer_manager: a request that finishes is counted by either server.

Cost of input is that of the prefill pool, cost of output that of the decode pool. Members that do
both divide theirs as their hosts did; a worker without counts, like those together.

A proxy of vLLM sends a request to the decode server after prefill: none of the servers times all of
the wait for the first token, and that of the prefill pool is without the transfer. With SGLang both
get the request at once, and decode times the wait. What each server times counts once.

A unit cost needs the cost of all parts: it is computed over the hours in which each of them has
windows with a cost all the time. Nothing is extrapolated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from costprobe.adapters.databases.question import Question
from costprobe.core.money import divided, exact, total_of
from costprobe.core.periods import DAY_NS, HOUR_NS, WEEK_NS
from costprobe.core.records import natural
from costprobe.core.slo import BOUNDS, SloShare, figure_of
from costprobe.core.units import counted
from costprobe.fleet.answers import FleetAnswers, FleetPeriod
from costprobe.fleet.group_rows import (
    COUNTED,
    COUNTS,
    GROUP,
    JUDGED,
    ROWS_OF,
    SLO,
    Book,
    Cell,
    Member,
    Span,
    assumed_devices,
    books_of,
    left_out_of,
    length_h_of,
    newest_rows,
    refine,
)

ROLES: Final = ("all", "prefill", "decode", "worker")
_READS: Final = ("prefill", "all", "worker")
_WRITES: Final = ("decode", "all", "worker")
# Shares of input and output in the cost of the roles that have one kind of tokens.
_ONE_KIND: Final = {"prefill": (1.0, 0.0), "decode": (0.0, 1.0)}
_MONEY: Final = ("cost_total", "cost_tokens_in", "cost_tokens_out")
_IDLE: Final = ("cost_idle", "cost_idle_known")
_ENERGY: Final = ("energy_j", "energy_tokens_in_j", "energy_tokens_out_j")
_TRANSFER: Final = ("kv_transfer_bytes", "kv_transfer_s", "kv_transfer_failures")
# Fields that some rows may lack; `cost_total` is in all.
_KNOWN_OF: Final = ("cost_total", "energy_j")
# Of the comparisons.
_SHIFTS_NS: Final = (DAY_NS, WEEK_NS)
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RoleCost:
    """What the members of one role cost.

    Attributes:
        role: `all`, `prefill`, `decode` or `worker`.
        cost: Currency units; those of all roles add up to the group's.
        idle_share: Part of it that paid for idle time, 0 to 1; None if unknown.
        energy_j: Energy; None if that of a member is unknown.
        hosts: Number of hosts.
        devices: Number of devices.
    """

    role: str
    cost: Decimal
    idle_share: float | None
    energy_j: float | None
    hosts: int
    devices: int


@dataclass(frozen=True, slots=True)
class FleetGroup:
    """What a group cost in the hours of a period in which it was whole, in one currency.

    Attributes:
        group: Its name.
        has_parts: Whether members are parts, which have no unit costs of their own.
        currency: ISO 4217 code; empty without one.
        priced_h: Number of these hours.
        period_h: Number of whole hours of the period.
        cost: Currency units in them, exactly the sum over the members.
        cost_tokens_in: Part of it for input tokens; None if it cannot be divided.
        cost_tokens_out: The rest, for output tokens.
        roles: The cost by role.
        requests: Requests, each counted once; None if no member counts them.
        error_share: Share of failed requests in all, 0 to 1; None if unknown.
        tokens_in: Input tokens, cached ones included, each counted once; None if not counted.
        cached_tokens: Those of them that a cache answered.
        tokens_out: Output tokens, each counted once.
        cost_per_request: Currency per request; None without the counts or the whole cost.
        cost_per_million_tokens_in: Currency per million input tokens.
        cost_per_million_tokens_out: Currency per million output tokens.
        energy_j: Energy; None if that of a member is unknown.
        energy_per_million_tokens_in_j: Energy of input per million input tokens.
        energy_per_million_tokens_out_j: Energy of output per million output tokens.
        idle_share: Part of the cost that paid for idle time, 0 to 1; None if unknown.
        kv_transfer_bytes: KV cache that was transferred between pools; None if it is not counted.
        kv_transfer_s: Time of the transfers, summed over transfers.
        kv_transfer_failures: Failed transfers.
        change_24h_pct: Change of the unit cost (a million output tokens, else a request) against the
            same hours a day before, in percent; None if there are none in which it was whole.
        change_7d_pct: The same against a week before.
        slo: The requests within each bound of the service level, each counted once, with the cost
            by them, which is that of the whole group; of members with several bounds the largest is named.
        hosts: Number of hosts that sent rows in the period.
        devices: Number of their devices.
        problems: What is not known, and why, one sentence each.
    """

    group: str
    has_parts: bool
    currency: str
    priced_h: int
    period_h: int
    cost: Decimal
    cost_tokens_in: Decimal | None = None
    cost_tokens_out: Decimal | None = None
    roles: tuple[RoleCost, ...] = ()
    requests: float | None = None
    error_share: float | None = None
    tokens_in: float | None = None
    cached_tokens: float | None = None
    tokens_out: float | None = None
    cost_per_request: float | None = None
    cost_per_million_tokens_in: float | None = None
    cost_per_million_tokens_out: float | None = None
    energy_j: float | None = None
    energy_per_million_tokens_in_j: float | None = None
    energy_per_million_tokens_out_j: float | None = None
    idle_share: float | None = None
    kv_transfer_bytes: float | None = None
    kv_transfer_s: float | None = None
    kv_transfer_failures: float | None = None
    change_24h_pct: float | None = None
    change_7d_pct: float | None = None
    slo: tuple[SloShare, ...] = ()
    hosts: int = 0
    devices: int = 0
    problems: tuple[str, ...] = ()


def fleet_groups(answers: FleetAnswers) -> list[FleetGroup]:
    """Return the groups with rows in a period, by name and currency.

    Args:
        answers: The database, and the period; its last whole hours are asked for.

    Raises:
        DeliveryError: The database did not answer.
    """
    asked = answers.over(_hours_of(answers.period))
    if not (asked_h := length_h_of(asked)):
        return []
    fields = (*_MONEY, *_IDLE, *_ENERGY, *COUNTED, *_TRANSFER)
    changed = (*_MONEY, *COUNTS)
    spans: list[Span] = [(asked, fields, _KNOWN_OF)]
    spans += [
        (answers.over(_shifted(asked.period, -shift_ns)), changed, ()) for shift_ns in _SHIFTS_NS
    ]
    # Of a group that was whole all the time the sums of the period are enough, and else those of a day that was.
    periods = [books_of(*span, hours=asked_h) for span in spans]
    books = periods[0]
    if not books:
        return []
    broken = {name for name, book in books.items() if not book.is_whole}
    refine(periods, spans, broken)
    # Changes of the others are over the hours in which they were whole before, too.
    compared = [dict(each) for each in periods]
    partly = {
        name for each in periods[1:] for name, book in each.items() if not book.is_whole
    } - broken
    refine(compared, [(each, changed, ()) for each, *_ in spans], partly & {*books})
    newest, outside, assumed = (
        newest_rows(answers),
        left_out_of(answers, books),
        assumed_devices(answers),
    )
    bounds_ms = asked.groups(Question("slo", "bound_ms", "max", "max", by=(GROUP, "bound")))
    found = []
    for name, book in sorted(books.items(), key=lambda item: natural(item[0])):
        book.expect(newest.get(name, {}))
        left_out = outside.get(name, {})
        gaps = (
            *left_out.values(),
            *book.gaps(asked.period, newest.get(name, {})),
            *book.assumptions(assumed),
        )
        book.expect(left_out)
        for currency in book.currencies:
            changes = _changes_pct([each.get(name) for each in compared], currency)
            one = _group(name, currency, book, changes, asked.period, gaps)
            levels = [
                replace(level, bound_ms=bounds_ms.get((name, level.bound))) for level in one.slo
            ]
            found.append(replace(one, slo=tuple(levels)))
    return found


def _hours_of(period: FleetPeriod) -> FleetPeriod:
    """Return the last whole hours of a period."""
    hours = (period.end_ns - period.start_ns) // HOUR_NS
    return period._replace(start_ns=period.end_ns - hours * HOUR_NS)


def _shifted(period: FleetPeriod, by_ns: int) -> FleetPeriod:
    return period._replace(start_ns=period.start_ns + by_ns, end_ns=period.end_ns + by_ns)


class _Sums:
    """Sums over the members of a group in some hours, in one currency."""

    def __init__(self, hours: Iterable[Mapping[Member, Cell]], currency: str) -> None:
        self._values: dict[Member, dict[str, list[float]]] = {}
        self._sums: dict[tuple[str, Member], Decimal] = {}
        for cells in hours:
            for member, cell in cells.items():
                values = self._values.setdefault(member, defaultdict(list))
                for name, value in {**cell.sums, **cell.money.get(currency, {})}.items():
                    values[name].append(value)

    @property
    def members(self) -> Collection[Member]:
        return self._values.keys()

    def of(self, name: str, members: Iterable[Member]) -> Decimal | None:
        """Return the exact sum of a field over members; None where no row has it."""
        sums = []
        for member in members:
            if values := self._values[member].get(name):
                key = name, member
                if key not in self._sums:
                    self._sums[key] = total_of([exact(value) for value in values])
                sums.append(self._sums[key])
        return total_of(sums) if sums else None

    def is_complete(self, name: str) -> bool:
        """Whether each row of each member has a field."""
        return all(self.is_known(name, member) for member in self.members)

    def is_known(self, name: str, member: Member) -> bool:
        """Whether each row of a member has a field."""
        return self.of(ROWS_OF + name, [member]) == self.of(f"{ROWS_OF}cost_total", [member])

    def counted(self, name: str, roles: Collection[str]) -> float | None:
        """Return a count of the members of some roles; None if none of them counts it, or not all that served."""
        if name in COUNTS and self.uncounted(name, roles):
            return None
        return _number(self.of(name, [one for one in self.members if one.role in roles]))

    def uncounted(self, name: str, roles: Collection[str]) -> list[Member]:
        """Return the members that served something, but do not count this as others do."""
        if not self.has(name, roles):
            return []
        return [
            one
            for one in sorted(self.members)
            if one.role in roles
            and self.of(name, [one]) is None
            and any(self.of(other, [one]) for other in COUNTS)
        ]

    def has(self, name: str, roles: Collection[str]) -> bool:
        """Whether a member of some roles has a field."""
        return self.of(name, [one for one in self.members if one.role in roles]) is not None

    def divided(self, whole: str, part_in: str, part_out: str) -> tuple[Decimal, Decimal] | None:
        """Divide an amount between input and output; the parts add up to it exactly.

        None without members, or if some do both, and none of them says how.
        """
        both = [one for one in self.members if one.role not in _ONE_KIND]
        usual = self._shares(both, part_in, part_out)
        parts = []
        for member in self.members:
            amount = self.of(whole, [member]) or Decimal(0)
            shares = _ONE_KIND.get(member.role) or self._shares([member], part_in, part_out)
            if shares is None and (shares := usual) is None:
                return None
            parts.append(divided(amount, shares))
        if not parts:
            return None
        return total_of([part[0] for part in parts]), total_of([part[1] for part in parts])

    def _shares(
        self, members: Iterable[Member], part_in: str, part_out: str
    ) -> tuple[float, float] | None:
        of_input, of_output = (float(self.of(name, members) or 0) for name in (part_in, part_out))
        if not of_input + of_output:
            return None
        # With electricity below zero an amount may be below zero, too.
        share = min(1.0, max(0.0, of_input / (of_input + of_output)))
        return share, 1 - share

    def prices(self) -> tuple[float | None, float | None, float | None]:
        """Return the cost of a million input tokens, of a million output tokens, and of a request."""
        cost = None if self.lacks else self.of("cost_total", self.members)
        return (
            *self.per_million(*_MONEY),
            _per(cost, self.counted("requests", _WRITES)),
        )

    def per_million(
        self, whole: str, part_in: str, part_out: str
    ) -> tuple[float | None, float | None]:
        """Return an amount for a million input tokens, and for a million output tokens."""
        parts = self.divided(whole, part_in, part_out)
        if parts is None:
            return None, None
        of_input = None if self.lacks == "prefill" else parts[0]
        return (
            _per(of_input, self.tokens("tokens_in"), _MILLION),
            _per(parts[1], self.tokens("tokens_out"), _MILLION),
        )

    @property
    def lacks(self) -> str:
        """The pool of a disaggregated server whose cost nobody reports; empty for none."""
        roles = {member.role for member in self.members}
        return {frozenset({"prefill"}): "decode", frozenset({"decode"}): "prefill"}.get(
            frozenset(roles), ""
        )

    def judged(self) -> Iterator[tuple[SloShare, list[Member]]]:
        """Yield the requests within each bound of the service level, and the members that time none.

        The time to first token is that of the prefill pool if it times any requests, else that of
        the decode pool; the other times are those of the decode pool.
        """
        for bound in BOUNDS:
            of_all, of_met = (f"{SLO}{name} {bound}" for name in JUDGED)
            if not self.has(of_all, ROLES):
                continue
            roles = _WRITES
            if figure_of(bound) == "ttft":
                roles = _READS if self.counted(of_all, ("prefill",)) else _WRITES
            requests, met = (self.counted(name, roles) or 0.0 for name in (of_all, of_met))
            lacking = self.uncounted(of_all, roles)
            cost = None if lacking or self.lacks else self.of("cost_total", self.members)
            yield SloShare(bound, requests, met, cost_per_request_met=_per(cost, met)), lacking

    def tokens(self, name: str) -> float | None:
        """Return a number of tokens, each counted once.

        Input tokens are those of the decode pool where no prefill server is read.
        """
        if name == "tokens_out":
            return self.counted(name, _WRITES)
        is_read = self.counted("tokens_in", ("prefill",)) is not None
        return self.counted(name, _READS if is_read else ROLES)


def _group(
    name: str,
    currency: str,
    book: Book,
    changes: Mapping[int, float | None],
    period: FleetPeriod,
    gaps: tuple[str, ...],
) -> FleetGroup:
    whole = book.whole()
    hours = _paid_hours(whole, currency)
    is_alone = bool(hours)
    if not is_alone:
        # Its cost is known in this currency, not what a token costs.
        hours = {end_ns: cells for end_ns, cells in whole.items() if _pays(cells, currency)}
    sums = _Sums(hours.values(), currency)
    asked = (period.end_ns - period.start_ns) // HOUR_NS
    cost = sums.of("cost_total", sums.members) or Decimal(0)
    parts = sums.divided(*_MONEY) if hours else None
    price_in, price_out, price = sums.prices() if is_alone else (None, None, None)
    energy = sums.of("energy_j", sums.members) if sums.is_complete("energy_j") else None
    joules = (None, None) if energy is None else sums.per_million(*_ENERGY)
    tokens_in, tokens_out = sums.tokens("tokens_in"), sums.tokens("tokens_out")
    requests, errors = (sums.counted(field, _WRITES) for field in ("requests", "errors"))
    return FleetGroup(
        group=name,
        has_parts=bool(book.parts),
        currency=currency,
        priced_h=_length_of(hours),
        period_h=asked,
        cost=cost,
        cost_tokens_in=parts and parts[0],
        cost_tokens_out=parts and parts[1],
        roles=_roles(sums, book),
        requests=requests,
        error_share=errors / (requests + errors)
        if requests is not None and errors is not None and requests + errors
        else None,
        tokens_in=tokens_in,
        cached_tokens=sums.tokens("cached_tokens"),
        tokens_out=tokens_out,
        cost_per_request=price,
        cost_per_million_tokens_in=price_in,
        cost_per_million_tokens_out=price_out,
        energy_j=_number(energy),
        energy_per_million_tokens_in_j=joules[0],
        energy_per_million_tokens_out_j=joules[1],
        idle_share=_idle_share(sums, sums.members),
        kv_transfer_bytes=sums.counted("kv_transfer_bytes", ROLES),
        kv_transfer_s=sums.counted("kv_transfer_s", ROLES),
        kv_transfer_failures=sums.counted("kv_transfer_failures", ROLES),
        change_24h_pct=changes[DAY_NS] if is_alone else None,
        change_7d_pct=changes[WEEK_NS] if is_alone else None,
        slo=tuple(
            one if is_alone else replace(one, cost_per_request_met=None) for one, _ in sums.judged()
        ),
        hosts=len({member.host for member, devices in book.devices.items() if devices}),
        devices=_devices(book, book.devices),
        problems=tuple(_problems(sums, book, hours, is_alone, asked, gaps)),
    )


def _pays(cells: Mapping[Member, Cell], currency: str) -> bool:
    return any(currency in cell.money for cell in cells.values())


def _paid_hours(
    hours: Mapping[int, Mapping[Member, Cell]], currency: str
) -> dict[int, Mapping[Member, Cell]]:
    """Return the hours in which all members are paid in one currency, and in no other."""
    return {
        end_ns: cells
        for end_ns, cells in hours.items()
        if all(set(cell.money) == {currency} for cell in cells.values())
    }


def _length_of(cells: Mapping[int, Mapping[Member, Cell]]) -> int:
    """Return the number of hours of some cells."""
    return sum(next(iter(each.values())).hours for each in cells.values())


def _changes_pct(books: Sequence[Book | None], currency: str) -> dict[int, float | None]:
    """Return the changes of the unit cost of the first book against each of the others."""
    now = {} if books[0] is None else _paid_hours(books[0].whole(), currency)
    return {
        shift_ns: None if then is None else _change_pct(now, then, shift_ns, currency)
        for shift_ns, then in zip(_SHIFTS_NS, books[1:], strict=True)
    }


def _change_pct(
    now: Mapping[int, Mapping[Member, Cell]], then: Book, shift_ns: int, currency: str
) -> float | None:
    """Return the change of the unit cost over the hours that are known on both days, in percent."""
    before = _paid_hours(then.whole(), currency)
    common = [end_ns for end_ns in now if end_ns - shift_ns in before]
    after = _Sums((now[end_ns] for end_ns in common), currency).prices()
    earlier = _Sums((before[end_ns - shift_ns] for end_ns in common), currency).prices()
    for position in (1, 2):
        old, new = earlier[position], after[position]
        if old and new is not None:
            return (new / old - 1) * 100
    return None


def _roles(sums: _Sums, book: Book) -> tuple[RoleCost, ...]:
    found = []
    for role in ROLES:
        members = [one for one in sums.members if one.role == role]
        if members:
            has_energy = sums.is_complete("energy_j")
            found.append(
                RoleCost(
                    role,
                    sums.of("cost_total", members) or Decimal(0),
                    _idle_share(sums, members),
                    _number(sums.of("energy_j", members)) if has_energy else None,
                    len({member.host for member in members}),
                    _devices(book, members),
                )
            )
    return tuple(found)


def _devices(book: Book, members: Iterable[Member]) -> int:
    return len({(member.host, device) for member in members for device in book.devices[member]})


def _idle_share(sums: _Sums, members: Collection[Member]) -> float | None:
    idle, known = (sums.of(name, members) for name in _IDLE)
    return min(1.0, max(0.0, float(idle / known))) if known and idle is not None else None


def _problems(
    sums: _Sums,
    book: Book,
    hours: Mapping[int, Mapping[Member, Cell]],
    is_alone: bool,  # noqa: FBT001 - internal
    asked: int,
    gaps: Iterable[str],
) -> Iterator[str]:
    """Yield what is not known of a group, and why."""
    if not hours:
        who = "all parts" if book.parts else "a replica"
        yield f"no unit cost: in no hour did {who} have a cost all the time"
    elif not is_alone:
        paid = " and ".join(currency or "no currency" for currency in book.currencies)
        yield f"no unit cost: members are paid in {paid}, which are never added"
    elif (priced_h := _length_of(hours)) < asked:
        of_asked = f"{priced_h:,} of {counted(asked, 'hour')}"
        who = "all parts have" if book.parts else "a replica has"
        yield f"priced over {of_asked}: those in which {who} a cost all the time"
    yield from gaps
    if hours and sums.lacks:
        yield (
            f'no member with role = "{sums.lacks}": the group has no cost of a request, and none of'
            f" {'input' if sums.lacks == 'prefill' else 'output'} tokens"
        )
    elif hours and not (sums.has("requests", _WRITES) or sums.has("tokens_out", _WRITES)):
        yield "no requests and no output tokens: set url on one host of each engine"
    for name, roles in (("requests", _WRITES), ("tokens_in", _READS), ("tokens_out", _WRITES)):
        if lacking := sums.uncounted(name, roles):
            who = ", ".join(map(str, lacking))
            words = {"requests": "requests", "tokens_in": "input tokens"}.get(name, "output tokens")
            yield f"{who}: no count of {words}: the group has no price of these"
    yield from _untimed(sums)
    if hours and not sums.is_complete("energy_j"):
        lacks = [str(one) for one in sorted(sums.members) if not sums.is_known("energy_j", one)]
        yield f"the energy of {', '.join(lacks)} is not known all the time"


def _untimed(sums: _Sums) -> Iterator[str]:
    """Yield which members time no requests for a bound that others do."""
    for one, lacking in sums.judged():
        if lacking:
            who = ", ".join(map(str, lacking))
            yield f"{who}: no requests timed for {one.bound}: the group's is that of the others"


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _per(amount: Decimal | None, count: float | None, per: int = 1) -> float | None:
    return None if amount is None or not count else float(amount * per / exact(count))
