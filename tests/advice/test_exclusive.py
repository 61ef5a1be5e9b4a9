"""No saving is counted twice."""

from decimal import Decimal
from itertools import pairwise

from costprobe.domain.advice.exclusive import excludes, exclusions, together
from costprobe.domain.advice.hint import Hint
from costprobe.domain.advice.history import History
from costprobe.domain.advice.registry import ADVISORS, advice
from fakes.past import device, figures, probe
from hypothesis import given
from hypothesis import strategies as st


def hint(kind, saving, *devices, currency="USD"):
    devices = devices or ("gpu0",)
    return Hint(kind, "it", devices, "do it", Decimal(saving), currency, ("why",), "much")


HINTS = st.lists(
    st.builds(
        hint,
        st.sampled_from(sorted(ADVISORS)),
        st.integers(1, 5),
        st.sampled_from(["gpu0", "gpu1"]),
        currency=st.sampled_from(["EUR", "USD"]),
    ),
    max_size=12,
)


def test_hints_on_a_device_are_exclusive_except_batch_with_idle_hours():
    apart = {
        frozenset({one, other})
        for one in ADVISORS
        for other in ADVISORS
        if excludes(hint(one, 1), hint(other, 1)) is None
    }
    assert apart == {frozenset({"batch", "idle_hours"})}
    assert "also paid in the hours off" in excludes(hint("reserved", 1), hint("idle_hours", 1))
    assert "both assume all" in excludes(hint("batch", 1), hint("batch", 1))


def test_savings_on_different_devices_are_summed():
    hints = [
        hint("reserved", 100, "gpu0"),
        hint("idle_hours", 150, "gpu0", "gpu1"),
        hint("batch", 30, "gpu0"),
        hint("batch", 20, "gpu1"),
        hint("mig_slice", 10, "gpu2"),
        hint("mig_slice", 7, "gpu3", currency="EUR"),
    ]
    assert set(exclusions(hints)[0]) == {1, 2}
    assert exclusions(hints)[4] == {}
    euros, dollars = together(hints)
    assert (euros.currency, euros.saving_per_month, euros.hints) == ("EUR", 7, (5,))
    assert (dollars.currency, dollars.saving_per_month) == ("USD", 210)
    assert dollars.hints == (1, 2, 3, 4)


@given(HINTS)
def test_summed_hints_are_never_exclusive(hints):
    for index, others in enumerate(exclusions(hints)):
        assert all(exclusions(hints)[other][index] == why for other, why in others.items())
    for one in together(hints):
        taken = [hints[index] for index in one.hints]
        assert one.saving_per_month == sum(found.saving_per_month for found in taken)
        assert all(excludes(a, b) is None for a in taken for b in taken if a is not b)
        assert {found.currency for found in taken} == {one.currency}


def test_hints_of_all_advisors_are_sorted_by_saving():
    past = device(util_of=lambda hour: 60.0 if hour % 24 < 12 else 0.0)
    found = probe(figures(8, 10.0), figures(16, 16.0), bound_ms=20.0)
    hints, no_hints = advice(History({"gpu0": past}, [found]))
    assert [hint.kind for hint in hints] == ["idle_hours", "batch"]
    assert all(a.saving_per_month >= b.saving_per_month for a, b in pairwise(hints))
    assert {one.kind for one in no_hints} == {"reserved", "cpu"}
    (all_of,) = together(hints)
    assert all_of.hints == (0, 1)
