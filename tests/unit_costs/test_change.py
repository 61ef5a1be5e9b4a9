"""A cost change is decomposed into factors without a remainder, and the changed factor is named."""

import math

import pytest
from costprobe.unit_costs.change import CostFactors, capacity_worth, split_change
from hypothesis import given
from hypothesis import strategies as st

POSITIVE = st.floats(1e-6, 1e6)
MAYBE = st.just(0.0) | POSITIVE


def factors():
    return st.builds(CostFactors, POSITIVE, POSITIVE, MAYBE, POSITIVE)


@given(factors(), factors())
def test_parts_sum_to_the_change_and_have_the_opposite_signs_in_reverse(before, after):
    change, back = split_change(before, after), split_change(after, before)
    assert math.fsum(change.parts.values()) == pytest.approx(change.log_ratio, rel=1e-6, abs=1e-9)
    for factor, part in change.parts.items():
        assert back.parts[factor] == pytest.approx(-part, rel=1e-6, abs=1e-9)


def test_single_changed_factor_explains_all():
    before = (2.0, 1.0, 1.0, 1.0)
    for index, factor in enumerate(
        ("hardware price", "time per inference", "electricity price", "energy per inference")
    ):
        after = [1.1 * value if at == index else value for at, value in enumerate(before)]
        change = split_change(CostFactors(*before), CostFactors(*after))
        assert change.largest == (factor, pytest.approx(1.0))


def test_zero_cost_has_no_ratio():
    with pytest.raises(ValueError, match="positive"):
        split_change(CostFactors(0.0, 1.0), CostFactors(1.0, 1.0))


def test_a_change_is_worth_at_most_its_device():
    # 1 a second: 2,628,000 a month. A quarter of it pays for a rise by a third; a fall by 96 % frees 96 %.
    for ratio, share in ((4 / 3, 0.25), (1.0, 0.0), (0.04, -0.96)):
        assert capacity_worth(1.0, ratio) == pytest.approx(730 * 3600 * share), ratio
