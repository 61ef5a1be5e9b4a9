"""Charges: what a device cost between two instants, split where its price changes.

The one computation of a device's cost. A charge is a row of `device`, the rows add up to budgets and
reports, and the parts of charges within a window are what is allocated: all are the same amounts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.domain.costing.money import exact, total_of
from costprobe.domain.pricing.book import Terms

# Interval at which terms are compared; a change within it is located by bisection.
STEP_NS = 10 * NS_PER_S
MAX_STEPS = 10_000

EnergyBetween = Callable[[int, int], float | None]
TermsAt = Callable[[int], Terms | None]


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of a device between two instants, under constant terms.

    Attributes:
        start_ns: Start, CLOCK_MONOTONIC ns.
        end_ns: End.
        terms: The terms in force; None where nothing prices the device.
        hardware: Currency for the time of the device, used or not; None without terms.
        electricity: Currency for electricity that is paid for apart, of a MIG device its part of the
            board's; None without terms, or where the energy is unknown.
    """

    start_ns: int
    end_ns: int
    terms: Terms | None
    hardware: Decimal | None = None
    electricity: Decimal | None = None

    @property
    def cost(self) -> Decimal | None:
        """Currency, hardware and electricity; None if either is unknown, as one alone is too low."""
        if self.hardware is None or self.electricity is None:
            return None
        return total_of([self.hardware, self.electricity])

    def within(self, start_ns: int, end_ns: int) -> Charge:
        """Return the part between two instants; cost is spread evenly over its time."""
        first, last = max(self.start_ns, start_ns), min(self.end_ns, end_ns)
        if (first, last) == (self.start_ns, self.end_ns):
            return self
        share = Fraction(max(0, last - first), max(1, self.end_ns - self.start_ns))
        return Charge(
            first,
            max(first, last),
            self.terms,
            None if self.hardware is None else exact(Fraction(self.hardware) * share),
            None if self.electricity is None else exact(Fraction(self.electricity) * share),
        )


def charges_of(
    terms_at: TermsAt, start_ns: int, end_ns: int, energy_j: EnergyBetween
) -> tuple[Charge, ...]:
    """Return the charges of an interval, one for each span of constant terms.

    A price change that is reversed within ten seconds may be missed.

    Args:
        terms_at: The terms in force at an instant.
        start_ns: Start of the interval in ns.
        end_ns: Its end.
        energy_j: Returns the joules between two instants; None if unknown.
    """
    return tuple(
        Charge(
            since_ns,
            until_ns,
            terms,
            None if terms is None else _hardware(terms, until_ns - since_ns),
            None if terms is None else _electricity(terms, energy_j, since_ns, until_ns),
        )
        for since_ns, until_ns, terms in _spans(terms_at, start_ns, end_ns)
    )


def _hardware(terms: Terms, length_ns: int) -> Decimal:
    return exact(Fraction(terms.rate.per_hour) * length_ns / (int(HOUR_S) * NS_PER_S))


def _electricity(
    terms: Terms, energy_j: EnergyBetween, start_ns: int, end_ns: int
) -> Decimal | None:
    if terms.electricity_per_j == 0.0:
        return Decimal(0)
    drawn_j = energy_j(start_ns, end_ns)
    if drawn_j is None:
        return None
    return exact(Fraction(exact(terms.electricity_per_j)) * Fraction(exact(drawn_j)))


def _spans(
    terms_at: TermsAt, start_ns: int, end_ns: int
) -> Sequence[tuple[int, int, Terms | None]]:
    """Return the spans of constant terms: start, end and terms of each."""
    step_ns = max(STEP_NS, (end_ns - start_ns) // MAX_STEPS)
    edges_ns = [*range(start_ns, end_ns, step_ns), end_ns]
    spans: list[tuple[int, int, Terms | None]] = []
    last, since_ns = terms_at(start_ns), start_ns
    for low_ns, high_ns in pairwise(edges_ns):
        after = terms_at(high_ns)
        if not _same(last, after):
            change_ns = _change_ns(terms_at, last, low_ns, high_ns)
            spans.append((since_ns, change_ns, last))
            last, since_ns = after, change_ns
    spans.append((since_ns, end_ns, last))
    return [span for span in spans if span[1] > span[0]] or spans


def _same(first: Terms | None, other: Terms | None) -> bool:
    if first is None or other is None:
        return first is other
    return (
        first.rate.price == other.rate.price
        and first.rate.plan == other.rate.plan
        and first.electricity_per_j == other.electricity_per_j
    )


def _change_ns(terms_at: TermsAt, before: Terms | None, low_ns: int, high_ns: int) -> int:
    """Return the first instant with other terms within a step."""
    while high_ns - low_ns > 1:
        middle_ns = (low_ns + high_ns) // 2
        if _same(before, terms_at(middle_ns)):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
    return high_ns
