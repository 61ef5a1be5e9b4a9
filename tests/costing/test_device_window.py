"""The cost of a device over a window with price changes."""

from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.serving.device_window import (
    electricity_cost,
    hardware_cost,
    pieces_of,
)
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.rate import Rate
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


def test_price_change_splits_the_window():
    at = stepwise((0, terms("3.6")), (1000 * S + 123_000_000, terms("7.2")))
    pieces = pieces_of(at, 0, 2000 * S)
    assert [piece.terms.rate.per_hour for piece in pieces] == [Decimal("3.6"), Decimal("7.2")]
    assert pieces[0].end_ns == pytest.approx(1000.123 * S, abs=1_000_000)
    wanted = 1000.123 * 0.001 + 999.877 * 0.002
    assert float(hardware_cost(pieces)) == pytest.approx(wanted, abs=3e-6)


@given(st.decimals("0.0001", "999", places=6), st.integers(1, 10**15))
def test_constant_price_is_exact(per_hour, length_ns):
    pieces = pieces_of(lambda _: terms(per_hour), 7, 7 + length_ns)
    assert len(pieces) == 1
    wanted = Fraction(per_hour) * length_ns / HOUR
    assert abs(Fraction(hardware_cost(pieces)) - wanted) <= Fraction(1, 2 * 10**15)


def test_electricity_is_priced_at_the_tariff_in_force():
    at = stepwise((0, terms("1", 1e-7)), (100 * S, terms("1", 3e-7)))
    pieces = pieces_of(at, 0, 200 * S)

    def drawn_j(start_ns, end_ns):
        return 300.0 * (end_ns - start_ns) / S

    assert float(electricity_cost(pieces, drawn_j, 0, 200 * S)) == pytest.approx(
        30_000 * 1e-7 + 30_000 * 3e-7, rel=1e-4
    )
    part = electricity_cost(pieces, drawn_j, 50 * S, 60 * S)
    assert float(part) == pytest.approx(3000 * 1e-7)


def test_unknown_energy_has_no_cost_unless_the_price_includes_it():
    metered = pieces_of(lambda _: terms("1", 1e-7), 0, 100 * S)
    included = pieces_of(lambda _: terms("1"), 0, 100 * S)
    assert electricity_cost(metered, lambda *_: None, 0, 100 * S) is None
    assert electricity_cost(included, lambda *_: None, 0, 100 * S) == 0


def test_partly_unpriced_window_has_no_price():
    assert pieces_of(stepwise((50 * S, terms("1"))), 0, 100 * S) is None
    assert pieces_of(lambda _: None, 0, 100 * S) is None
