"""What a device costs between two instants: its price and its electricity, through every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from agent.costing.money import exact
from agent.model import NS_PER_S
from agent.pricing.book import Terms
from agent.units import HOUR_S

# Terms are looked up so often, and where two differ the instant of the change is looked for.
STEP_NS = 10 * NS_PER_S
MAX_STEPS = 10_000
FOUND_NS = 1_000_000

EnergyBetween = Callable[[int, int], float | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time with one price.

    Attributes:
        start_ns: Its beginning, in ns of whatever clock the window is in.
        end_ns: Its end.
        terms: The terms in force.
    """

    start_ns: int
    end_ns: int
    terms: Terms


def pieces_of(
    terms_at: Callable[[int], Terms | None], start_ns: int, end_ns: int
) -> tuple[Piece, ...] | None:
    """The stretches of a window in which the price stayed; None where nothing prices a part.

    A price that moves and comes back within ten seconds may be missed.

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
    """Currency for holding the device, exact but for a last rounding."""
    total = Fraction(0)
    for piece in pieces:
        length_ns = piece.end_ns - piece.start_ns
        total += Fraction(piece.terms.rate.per_hour) * length_ns / (int(HOUR_S) * NS_PER_S)
    return exact(total)


def electricity_cost(
    pieces: Sequence[Piece], energy_j: EnergyBetween, start_ns: int, end_ns: int
) -> Decimal | None:
    """Currency for the electricity of a part of a window; 0 where the price includes it.

    Args:
        pieces: The window's.
        energy_j: Joules between two instants; None where they are not known.
        start_ns: Start of the part in ns.
        end_ns: Its end.

    Returns:
        None where it is paid for apart and the energy is not known.
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
    """The instant within a step at which the terms ceased to be what they were."""
    while high_ns - low_ns > FOUND_NS:
        middle_ns = (low_ns + high_ns) // 2
        found = terms_at(middle_ns)
        if found is not None and _same(before, found):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
    return high_ns
