"""The charges of a device: its cost in an interval with price changes."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.charges import DeviceCharges, charges_of
from costprobe.pricing.book import PriceBook, Terms, price_events
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan, Rate
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


@given(
    st.decimals("0.0001", "999", places=6),
    st.lists(st.integers(0, 10 * S), min_size=2, max_size=9).map(sorted),
)
def test_parts_that_follow_each_other_add_up_to_the_charge(per_hour, cuts):
    (charge,) = charges_of(lambda _: terms(per_hour, 1e-7), 0, 10 * S, drawn_j)
    ends = [-1, *cuts, 11 * S]
    parts = [charge.within(*span) for span in pairwise(ends)]
    assert sum(Fraction(part.hardware) for part in parts) == Fraction(charge.hardware)
    assert sum(Fraction(part.electricity) for part in parts) == Fraction(charge.electricity)


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


BOARD = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100")
OFFSET_NS = 1_780_000_000 * S
TARIFF = ElectricityConfig.model_validate({"tariff_per_kwh": "0.36"})


def book_with(*slices, generation=0):
    """Return the prices of a board of 7.00 an hour, and its MIG devices."""
    parts = [
        Device(f"gpu0.mig{i}", "mig", f"MIG-{generation}-{i}", "MIG", None, "gpu0", held, 7)
        for i, held in enumerate(slices)
    ]
    plan = OnDemandPlan(
        plan="on_demand",
        per_hour=Decimal("7.00"),
        per="device",
        electricity_included=False,
        valid_from=date(2026, 3, 1),
    )
    return PriceBook([plan], TARIFF, [BOARD, *parts]), parts


def test_board_and_its_mig_devices_cost_its_price_while_they_are_reconfigured():
    """Each is destroyed or created some seconds before the daemon knows it, within a reading."""
    phases = [  # until, MIG devices that exist, those that the daemon knows
        (10.3, (), ()),
        (15.0, (3, 3), ()),
        (40.6, (3, 3), (3, 3)),
        (46.0, (1, 2, 3), (3, 3)),
        (60.2, (1, 2, 3), (1, 2, 3)),
        (69.0, (), (1, 2, 3)),
        (80.0, (), ()),
    ]
    rows, charges, began = [], None, 0.0
    for number, (until, present, known) in enumerate(phases):
        book, parts = book_with(*known, generation=known)
        if charges is None or known != phases[number - 1][2]:
            before, charges = charges, DeviceCharges(book)
        else:
            before = None
        is_known = present == known
        while began < until:
            ends = min(until, float(int(began) + 1))
            span = int(began * S), int(ends * S)
            readings = [(Reading("gpu0", *span, {"energy_j": 300.0 * (ends - began)}), BOARD)]
            # A reading that began before the daemon knew the MIG devices is whole.
            early = 0 if number == 2 and began == 15.0 else None
            if is_known:
                since = int(14.2 * S) if early == 0 else span[0]
                readings += [(Reading(part.name, since, span[1], {}), part) for part in parts]
            rows += charges.charge(readings, OFFSET_NS)
            if before is not None:
                rows += before.flush(OFFSET_NS)
                before = None
            began = ends
    rows += charges.flush(OFFSET_NS)
    paid = [charge for row in rows for charge in row.charges]
    assert float(sum(charge.hardware for charge in paid)) == pytest.approx(7.00 * 80 / 3600)
    assert float(sum(charge.electricity for charge in paid)) == pytest.approx(
        300 * 80 * 0.36 / 3.6e6, rel=0.01
    )
    of_board = sum(charge.hardware for row in rows for charge in row.charges if row.device == BOARD)
    of_slices = 6 * (40.6 - 15.0) + 6 * (60.2 - 46.0)
    assert float(of_board) == pytest.approx((7 * 80 - of_slices) / 3600)


def test_other_mig_devices_are_no_change_of_the_tariff():
    whole, divided = (book_with(*held)[0].terms("gpu0", OFFSET_NS) for held in ((), (3, 3)))
    (event,) = price_events("gpu0", whole, divided, OFFSET_NS)
    assert (event.title, "electricity" in event.detail) == (
        "gpu0 now costs $1.00 per hour",
        False,
    )
    restored = Terms.from_document(divided.to_document())
    assert restored == divided
