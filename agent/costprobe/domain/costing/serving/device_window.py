"""Cost of a device between two instants: hardware and electricity, through price changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.book import Terms

# Interval at which terms are compared; a change within it is located by bisection.
STEP_NS = 10 * NS_PER_S
MAX_STEPS = 10_000
FOUND_NS = 1_000_000

EnergyBetween = Callable[[int, int], float | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A time span with one price.

    Attributes:
        start_ns: Its start, in ns of the window's clock.
        end_ns: Its end.
        terms: The terms in force.
    """

    start_ns: int
    end_ns: int
    terms: Terms


def pieces_of(
    terms_at: Callable[[int], Terms | None], start_ns: int, end_ns: int
) -> tuple[Piece, ...] | None:
    """Return the spans of a window with constant price; None if a part has no price.

    A price change that is reversed within ten seconds may be missed.

    Args:
        terms_at: The terms in force at an instant.
        start_ns: Start of the window in ns.
        end_ns: Its end.
    """
    step_ns = max(STEP_NS, (end_ns - start_ns) // MAX_STEPS)
    looked = [*range(start_ns, end_ns, step_ns), end_ns]
    found: list[Piece] = []
    last = terms_at(start_ns)
    since_ns = start_ns
    for low_ns, high_ns in pairwise(looked):
        after = terms_at(high_ns)
        if last is None or after is None:
            return None
        if not _same(last, after):
            change_ns = _change_ns(terms_at, last, low_ns, high_ns)
            found.append(Piece(since_ns, change_ns, last))
            last, since_ns = after, change_ns
    if last is None:
        return None
    found.append(Piece(since_ns, end_ns, last))
    return tuple(piece for piece in found if piece.end_ns > piece.start_ns)


def hardware_cost(pieces: Iterable[Piece]) -> Decimal:
    """Return the currency for holding the device, rounded once."""
    total = Fraction(0)
    for piece in pieces:
        length_ns = piece.end_ns - piece.start_ns
        total += Fraction(piece.terms.rate.per_hour) * length_ns / (int(HOUR_S) * NS_PER_S)
    return exact(total)


def electricity_cost(
    pieces: Sequence[Piece], energy_j: EnergyBetween, start_ns: int, end_ns: int
) -> Decimal | None:
    """Return the currency for electricity in a part of a window; 0 where the price includes it.

    Args:
        pieces: The window's.
        energy_j: Joules between two instants; None where unknown.
        start_ns: Start of the part in ns.
        end_ns: Its end.

    Returns:
        None if it is paid for apart and the energy is unknown.
    """
    total = Fraction(0)
    for piece in pieces:
        since_ns, until_ns = max(start_ns, piece.start_ns), min(end_ns, piece.end_ns)
        if until_ns <= since_ns or piece.terms.electricity_per_j == 0.0:
            continue
        drawn_j = energy_j(since_ns, until_ns)
        if drawn_j is None:
            return None
        total += Fraction(exact(piece.terms.electricity_per_j)) * Fraction(exact(drawn_j))
    return exact(total)


def _same(one: Terms, other: Terms) -> bool:
    return (
        one.rate.price == other.rate.price
        and one.rate.plan == other.rate.plan
        and one.electricity_per_j == other.electricity_per_j
    )


def _change_ns(
    terms_at: Callable[[int], Terms | None], before: Terms, low_ns: int, high_ns: int
) -> int:
    """Return the instant of the change of terms within a step."""
    while high_ns - low_ns > FOUND_NS:
        middle_ns = (low_ns + high_ns) // 2
        found = terms_at(middle_ns)
        if found is not None and _same(before, found):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
    return high_ns
