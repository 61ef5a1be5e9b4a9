"""Allocation of a device's cost among services: by hand, and exact to the last digit."""

import operator
from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.core.money import divided, exact, total_of
from costprobe.serving.allocation import Claim, DeviceUse, allocate
from hypothesis import given
from hypothesis import strategies as st

HOUR_S = 3600.0


def use(*claims, hardware="4", energy="1", **more):
    keys = {"device": "gpu0", "duration_s": HOUR_S, "busy_s": 900.0, **more}
    return DeviceUse(
        hardware=Decimal(hardware), energy=Decimal(energy), claims=tuple(claims), **keys
    )


def costs(allocation):
    """Return the cost by service and component."""
    return {(line.service, line.part): line.cost for line in allocation.lines}


def test_window_with_mostly_probing_has_no_serving_cost():
    found = allocate(use(Claim("chat"), probing_s=0.6 * HOUR_S))
    assert "probing took 60 % of gpu0's window" in found.problems["chat"]
    # The cost is still booked.
    assert total_of([line.cost for line in found.lines]) == 5
    assert allocate(use(Claim("chat"), probing_s=0.5 * HOUR_S)).problems == {}


def test_service_next_to_unknown_processes_needs_a_share_or_busy_time():
    assert allocate(use(Claim("chat"), other_busy_s=10.0)).problems.keys() == {"chat"}
    assert not allocate(use(Claim("chat", share=0.5), other_busy_s=10.0)).problems


def test_idle_services_without_shares_are_unallocated():
    found = allocate(use(Claim("a", busy_s=0.0), Claim("b", busy_s=0.0), busy_s=0.0))
    assert costs(found) == {("", "unallocated"): Decimal(5)}


def test_shares_above_one_are_scaled_down():
    found = allocate(use(Claim("a", share=1.0), Claim("b", share=1.0)))
    assert {line.service for line in found.lines} == {"a", "b"}
    assert total_of([line.cost for line in found.lines]) == 5


def test_without_busy_time_idle_cost_is_unknown():
    found = allocate(use(Claim("chat"), busy_s=None))
    assert costs(found) == {("chat", "held"): Decimal(5)}


def test_device_with_unknown_cost_has_no_lines():
    found = allocate(DeviceUse("gpu0", HOUR_S, Decimal(4), None, claims=(Claim("chat"),)))
    assert found.lines == ()
    assert found.problems == {"chat": "the cost of gpu0 is unknown"}


def test_unheld_slices_are_idle_and_a_fully_held_board_has_no_line():
    board = use(hardware="0.8", energy="0.2", is_unheld=True)
    assert costs(allocate(board)) == {("", "idle"): Decimal(1)}
    assert allocate(use(hardware="0", energy="0", is_unheld=True)).lines == ()


amounts = st.one_of(
    st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False),
    st.floats(min_value=0, max_value=1e9).map(exact),
)
# Electricity may cost less than nothing.
signed = st.builds(operator.mul, amounts, st.sampled_from([1, -1]))
seconds = st.floats(min_value=0, max_value=1e6)
claim = st.builds(
    Claim,
    service=st.sampled_from(["a", "b", "c", "d"]),
    busy_s=st.none() | seconds,
    share=st.none() | st.floats(min_value=0.001, max_value=1),
)
# Containers have a share of each device that they share.
container = st.builds(
    Claim,
    service=st.sampled_from(["a", "b", "c", "d"]),
    busy_s=st.none() | seconds,
    share=st.floats(min_value=0.001, max_value=1),
    basis=st.sampled_from(["replicas", "cores"]),
)
claims_of_a_device = st.one_of(
    st.lists(each, max_size=4, unique_by=lambda one: one.service) for each in (claim, container)
)
uses = st.builds(
    DeviceUse,
    device=st.just("gpu0"),
    duration_s=seconds,
    hardware=amounts,
    energy=signed,
    busy_s=st.none() | seconds,
    other_busy_s=seconds | st.just(0.0),
    probing_s=seconds | st.just(0.0),
    probing_energy=st.none() | signed,
    idle_energy=st.none() | signed.map(float),
    claims=claims_of_a_device.map(tuple),
    is_unheld=st.booleans(),
)


def fractions(amounts_):
    return sum((Fraction(amount) for amount in amounts_), Fraction(0))


@given(uses)
def test_lines_sum_exactly_to_the_cost_of_the_device(device):
    lines = allocate(device).lines
    assert fractions(line.hardware for line in lines) == Fraction(device.hardware)
    assert fractions(line.energy for line in lines) == Fraction(device.energy)
    assert all(line.hardware >= 0 for line in lines)
    assert all(line.energy * device.energy >= 0 for line in lines)
    shares = allocate(device).shares.values()
    assert sum(shares) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares)


@given(signed, st.lists(st.fractions(min_value=0, max_value=1000), min_size=1, max_size=9))
def test_parts_sum_exactly_and_differ_from_their_share_by_less_than_a_unit(amount, weights):
    if sum(weights) == 0:
        with pytest.raises(ValueError, match="weights not negative"):
            divided(amount, weights)
        return
    parts = divided(amount, weights)
    assert fractions(parts) == Fraction(amount)
    for part, weight in zip(parts, weights, strict=True):
        due = Fraction(amount) * weight / sum(weights)
        assert abs(Fraction(part) - due) < Fraction(1, 10**15)


@given(st.lists(amounts, max_size=20))
def test_sum_is_exact_beyond_the_decimal_context_precision(parts):
    assert Fraction(total_of(parts)) == fractions(parts)
