"""Allocation of a device's cost among services: by hand, and exact to the last digit."""

import operator
from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.core.money import divided, exact, total_of
from costprobe.serving.allocation import Claim, DeviceUse, allocate
from fakes.cases import check_all
from hypothesis import given
from hypothesis import strategies as st

HOUR_S = 3600.0


def use(*claims, hardware="4", energy="1", **more):
    keys = {"device": "gpu0", "duration_s": HOUR_S, "busy_s": 900.0, **more}
    return DeviceUse(
        hardware=Decimal(hardware), energy=Decimal(energy), claims=tuple(claims), **keys
    )


CHAT, BOTH = Claim("chat"), (Claim("a", busy_s=0.0), Claim("b", busy_s=0.0))
FULL = (Claim("a", share=1.0), Claim("b", share=1.0))
# What a device did, the cost of its lines (by service and part; None: any that add up), and the problem.
DEVICES = (
    (use(CHAT, probing_s=0.5 * HOUR_S), None, ""),
    # The cost is still booked.
    (use(CHAT, probing_s=0.6 * HOUR_S), None, "probing took 60 % of gpu0's window"),
    (use(CHAT, other_busy_s=10.0), None, "set share"),
    (use(Claim("chat", share=0.5), other_busy_s=10.0), None, ""),
    (use(*BOTH, busy_s=0.0), {("", "unallocated"): 5}, "set share"),
    # Shares above one are scaled down.
    (use(*FULL, busy_s=None), {("a", "held"): Decimal("2.5"), ("b", "held"): Decimal("2.5")}, ""),
    (use(CHAT, busy_s=None), {("chat", "held"): 5}, ""),
    (
        DeviceUse("gpu0", HOUR_S, Decimal(4), None, claims=(CHAT,)),
        {},
        "the cost of gpu0 is unknown",
    ),
    (use(hardware="0.8", energy="0.2", is_unheld=True), {("", "idle"): 1}, ""),
    (use(hardware="0", energy="0", is_unheld=True), {}, ""),
)


def test_cost_is_that_of_services_or_unallocated_with_the_reason():
    def check(device, costs, problem):
        found = allocate(device)
        by_line = {(line.service, line.part): line.cost for line in found.lines}
        if costs is None:
            assert total_of(by_line.values()) == 5
        else:
            assert by_line == costs
        assert bool(found.problems) == bool(problem)
        assert problem in "".join(found.problems.values())

    check_all(check, DEVICES)


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
