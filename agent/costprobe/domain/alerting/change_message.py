"""The message of a change in two lines: what changed, by how much and since when; why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final, TypedDict

from costprobe.core.money_text import money
from costprobe.core.records import NS_PER_S
from costprobe.core.units import significant
from costprobe.domain.detection.causes import UNKNOWN, Cause, Explanation, Share, action_of

# Further candidates are counted only.
MAX_CAUSES: Final = 4
# A share below this is not worth a line.
LEAST_SHARE: Final = 0.01
# A smaller change is shown as 0.0 %.
SHOWN_PCT: Final = 0.05


@dataclass(frozen=True, slots=True)
class MoneyChange:
    """A change of a cost per unit in money.

    Attributes:
        amount: Change, currency per unit.
        unit: What the cost is divided by: "1,000", "million tokens".
        currency: ISO 4217 code.
        per_month: Change of spend in a month of 730 h at the present rate; None if there is none.
        rate_per_s: The present rate, in `counted` per second.
        counted: What the rate counts: "inferences".
    """

    amount: float
    unit: str
    currency: str
    per_month: float | None = None
    rate_per_s: float | None = None
    counted: str = ""


@dataclass(frozen=True, slots=True)
class PricePart:
    """The part of a price change, beside the change at constant price.

    Attributes:
        time_ns: Time of the price change, UTC in ns.
        amount: Its own part, currency per unit of the MoneyChange.
    """

    time_ns: int
    amount: float


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A change of a series.

    Attributes:
        what: The series: "cost per inference of ranker on gpu0".
        change_pct: Change in percent.
        since_ns: Start of the change, UTC in ns.
        now_ns: Present UTC in ns.
        is_worse: Whether it is a deterioration.
        explanation: Its causes.
        basis: What the change is measured at: "at constant price"; empty for nothing.
        money: The change in money; None for another series than a cost, or without a price.
        price: A price change at about the same time, which is not a part of `money`.
        split: What the change consists of: "95 % of it is time per inference".
        action: What to do; empty for the action of the first cause.
    """

    what: str
    change_pct: float
    since_ns: int
    now_ns: int
    is_worse: bool
    explanation: Explanation
    basis: str = ""
    money: MoneyChange | None = None
    price: PricePart | None = None
    split: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """The two lines about a change.

    Attributes:
        headline: What changed, by how much, what that is a month, and since when.
        reason: The causes with their shares, and what to do.
    """

    headline: str
    reason: str


class MonthlyMoney(TypedDict, total=False):
    """The money of a change as fields of its event."""

    cost_per_month: float
    currency: str


def money_a_month(paid: MoneyChange | None) -> MonthlyMoney:
    """Return what a change costs in a month, as fields of its event; empty if it is unknown."""
    if paid is None or paid.per_month is None:
        return {}
    return {"cost_per_month": paid.per_month, "currency": paid.currency}


def change_message(
    change: ChangeFacts, verb: str = "is", zone: tzinfo | None = UTC
) -> ChangeMessage:
    """Return the message of a change.

    Args:
        change: The change.
        verb: Words between the series and the change in percent.
        zone: Zone of the times; None for the host's.
    """
    return ChangeMessage(_headline(change, verb, zone), _reason(change))


def _clock_time(time_ns: int, now_ns: int, zone: tzinfo | None) -> str:
    """Format a time for people, with its zone: without the date if it is today."""
    then, now = (
        datetime.fromtimestamp(ns // NS_PER_S, UTC).astimezone(zone) for ns in (time_ns, now_ns)
    )
    return f"{then:%H:%M %Z}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M %Z}"


def _headline(change: ChangeFacts, verb: str, zone: tzinfo | None) -> str:
    paid = change.money
    basis = f" {change.basis}" if change.basis else ""
    amount = "" if paid is None else f" ({_signed(paid.amount, paid)})"
    since = _clock_time(change.since_ns, change.now_ns, zone)
    text = f"{change.what} {verb} {change.change_pct:+z.1f} %{basis}{amount} since {since}"
    if paid is None:
        return text
    if paid.per_month is not None:
        text += f", {_plus(paid.per_month, paid.currency)} a month at the present rate"
        text += (
            ""
            if paid.rate_per_s is None
            else f" of {significant(paid.rate_per_s, 3)} {paid.counted}/s"
        )
    if change.price is not None:
        total = _signed(paid.amount + change.price.amount, paid)
        text += (
            f"; the price changed at {_clock_time(change.price.time_ns, change.now_ns, zone)}: its own part"
            f" is {_signed(change.price.amount, paid)}, both together {total}"
        )
    return text


def _reason(change: ChangeFacts) -> str:
    if abs(change.change_pct) < SHOWN_PCT:
        return "only the price changed" if change.price else "there is nothing to explain"
    parts = [change.split] if change.split else []
    parts.append(_causes_text(change.explanation))
    action = change.action or action_of(change.explanation.name)
    return f"{'; '.join(parts)}. {f'To do: {action}' if change.is_worse else 'No action is needed'}"


def _causes_text(explanation: Explanation) -> str:
    """Return the causes with their shares, the largest first; of an unknown cause all candidates."""
    listed = [
        cause
        for cause in explanation.causes
        if explanation.name == UNKNOWN
        or cause.share is None
        or abs(cause.share.mean) >= LEAST_SHARE
    ]
    if not listed:
        is_known = explanation.name != UNKNOWN
        name = explanation.name if is_known else f"{UNKNOWN}, no other monitored signal changed"
        return f"cause: {name}"
    is_alone = len(listed) == 1
    texts = [_cause_text(cause, is_alone=is_alone) for cause in listed[:MAX_CAUSES]]
    if len(listed) > MAX_CAUSES:
        texts.append(f"{len(listed) - MAX_CAUSES} more")
    named = "; ".join(texts)
    if any(cause.share is not None and cause.share.mean < 0 for cause in listed):
        named += " (one counteracts, so that others exceed 100 %)"
    if explanation.name != UNKNOWN:
        return f"cause: {named}"
    explained = explanation.explained
    known = "" if explained is None else f", {_share_text(explained)} explained"
    return f"cause: unknown{known}; candidates: {named}"


def _cause_text(cause: Cause, *, is_alone: bool) -> str:
    share = "" if cause.share is None else f" {_share_text(cause.share)}"
    # The text of an update has its versions: "driver 550.54 → 560.35".
    name = cause.name.partition(":")[0] if cause.text else cause.name
    text = f"{name}{share}: {cause.text}" if cause.text else f"{name}{share}"
    if cause.method != "remainder" or is_alone:
        return text
    # Its share is what the other causes leave.
    coincides = "coincides, " if cause.coincides else ""
    return f"{text} ({coincides}effect not measurable separately)"


def _share_text(share: Share) -> str:
    mean, low, high = (round(value * 100) for value in (share.mean, share.low, share.high))
    return f"{mean} %" if low == mean == high else f"{mean} % ({low} to {high} %)"


def _signed(amount: float, paid: MoneyChange) -> str:
    return f"{_plus(amount, paid.currency)} per {paid.unit}"


def _plus(amount: float, currency: str) -> str:
    return f"{'+' if amount >= 0 else ''}{money(amount, currency)}"
