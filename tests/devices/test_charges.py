"""The charges of a device: its cost in an interval with price changes."""

from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.devices.charges import charges_of
from costprobe.pricing.book import Terms
from costprobe.pricing.plans import Rate
from hypothesis import given
from hypothesis import strategies as st

S = NS_PER_S
HOUR = 3600 * S


def terms(per_hour, per_j=0.0):
    return Terms(Rate("spot", "USD", Decimal(per_hour), per_j == 0.0, "a test"), per_j)


def stepwise(*steps):
    """Return terms that apply from each instant on."""

    def at(t_ns):
        held = [found for since_ns, found in steps if since_ns <= t_ns]
        return held[-1] if held else None

    return at


def nothing(*_):
    return None


def drawn_j(start_ns, end_ns):
    return 300.0 * (end_ns - start_ns) / S


def test_price_change_splits_the_interval_at_its_instant():
    at = stepwise((0, terms("3.6")), (1000 * S + 123_456_789, terms("7.2")))
    charges = charges_of(at, 0, 2000 * S, nothing)
    assert [each.terms.rate.per_hour for each in charges] == [Decimal("3.6"), Decimal("7.2")]
    assert charges[0].end_ns == charges[1].start_ns == 1000 * S + 123_456_789
    wanted = 1000.123456789 * 0.001 + 999.876543211 * 0.002
    assert float(sum(each.cost for each in charges)) == pytest.approx(wanted, abs=1e-12)


@given(st.decimals("0.0001", "999", places=6), st.integers(1, 10**15))
def test_constant_price_is_exact(per_hour, length_ns):
    (charge,) = charges_of(lambda _: terms(per_hour), 7, 7 + length_ns, nothing)
    wanted = Fraction(per_hour) * length_ns / HOUR
    assert abs(Fraction(charge.cost) - wanted) <= Fraction(1, 2 * 10**15)


def test_electricity_is_priced_at_the_tariff_in_force():
    at = stepwise((0, terms("1", 1e-7)), (100 * S, terms("1", 3e-7)))
    charges = charges_of(at, 0, 200 * S, drawn_j)
    assert [float(each.electricity) for each in charges] == pytest.approx([0.003, 0.009])
    part = charges[0].within(50 * S, 60 * S)
    assert (float(part.electricity), float(part.hardware)) == pytest.approx((0.0003, 10 / 3600))
    assert charges[0].within(150 * S, 160 * S).cost == 0


def test_unknown_part_makes_the_cost_unknown():
    """Table of what is known: price, energy; each with the cost of 100 s."""
    cases = {
        "energy priced apart and unknown": (lambda _: terms("36", 1e-7), nothing, [None]),
        "energy in the price": (lambda _: terms("36"), nothing, [1]),
        "no price": (nothing, drawn_j, [None]),
        "no price at first": (stepwise((50 * S, terms("36"))), drawn_j, [None, 0.5]),
    }
    wrong = {}
    for name, (at, energy_j, wanted) in cases.items():
        found = [each.cost for each in charges_of(at, 0, 100 * S, energy_j)]
        if found != wanted:
            wrong[name] = found
    assert not wrong
