"""The Pareto front and the cheapest model within the limits, by hand and as properties."""

import math

import pytest
from costprobe.core.statistics import ConfidenceInterval
from costprobe.unit_costs.compare import (
    Candidate,
    Summary,
    change_of,
    cheapest,
    compared,
    deviation_words,
    dominates,
    dominators,
    on_identical,
    runs_needed,
    summarized,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st

FIGURES = st.one_of(st.integers(0, 3).map(float), st.just(math.inf))
POINTS = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.tuples(*[FIGURES] * size), min_size=1, max_size=20)
)


def flat(value, samples=10, iqr=0.0):
    return Summary(value, iqr, samples)


def candidate(name, cost, p99=None, quality=None, **more):
    return Candidate(
        **{
            "name": name,
            "basis": "probe",
            "device": "gpu0",
            "currency": "USD",
            "cost_per_inference": flat(cost) if isinstance(cost, float) else cost,
            "latency_p99_ms": None if p99 is None else flat(p99),
            "quality": quality,
            "samples": 10,
            **more,
        }
    )


@given(POINTS)
def test_only_points_outside_the_front_are_dominated(points):
    by = dominators(points)
    front = [point for point, index in zip(points, by, strict=True) if index is None]
    assert front
    for point in front:
        assert not any(dominates(other, point) for other in points)
    for point, index in zip(points, by, strict=True):
        if index is not None:
            assert by[index] is None
            assert dominates(points[index], point)


def test_median_and_interquartile_range():
    assert summarized([4.0, 1.0, 3.0, 2.0, 10.0]) == Summary(3.0, 2.0, 5)
    assert summarized([]) is None
    # 1.57 x 2 / sqrt(4) by McGill, Tukey and Larsen.
    assert Summary(3.0, 2.0, 4).notch == pytest.approx(1.57)


def test_pareto_front_uses_cost_latency_and_quality():
    (group,), left_out = compared(
        [
            candidate("large", 4e-6, 40, 0.95),
            candidate("small", 1e-6, 10, 0.80),
            candidate("old", 5e-6, 45, 0.90),
            candidate("odd", 3e-6, 60),
            # It takes less energy.
            candidate("frugal", 6e-6, 70, 0.1, energy_per_inference_j=flat(1.0)),
        ]
    )
    assert not left_out
    assert [(p.candidate.name, p.dominated_by) for p in group.placed] == [
        ("small", None),
        # An unknown quality is no advantage: small costs less and is faster.
        ("odd", "small"),
        ("large", None),
        ("old", "large"),
        ("frugal", None),
    ]


def test_cheapest_model_within_latency_and_quality_limits():
    group = [
        candidate("large", 4e-6, 40, 0.95),
        candidate("middle", 2e-6, 30, 0.91),
        candidate("slow", 1e-6, 90, 0.92),
        candidate("small", 1e-6, 10, 0.80),
        candidate("unrated", 1e-6, 10),
        candidate("unclocked", 1e-6, None, 0.99),
        candidate("both", 1e-6, None, 0.1),
        candidate("seldom", 1e-6, 9, 0.99, latency_p99_ms=flat(9.0, samples=2)),
    ]
    answer = cheapest(group, p99_ms=50, quality=0.9)
    assert answer.cheapest.name == "middle"
    assert answer.not_clearly == ()
    assert {out.candidate.name: out.reason for out in answer.left_out} == {
        "slow": "its p99 latency is 90 ms",
        "small": "its quality is 0.8",
        "unrated": "it has no quality; set quality in its table",
        "unclocked": "its p99 latency is unknown",
        "both": "its p99 latency is unknown and its quality is 0.1",
        "seldom": "its p99 latency has only 2 samples",
    }
    none = cheapest(group, p99_ms=1, quality=0.9)
    assert (none.cheapest, len(none.left_out)) == (None, len(group))
    assert cheapest([candidate("exact", 1e-6, 50, 0.9)], 50, 0.9).cheapest.name == "exact"


def test_differences_within_the_noise_are_not_cheaper():
    # Notches: 1.57 x 0.4 / sqrt(16) = 0.157 each; 1.0 and 1.3 overlap, 1.0 and 1.4 do not.
    costs = {"best": 1.0, "near": 1.3, "far": 1.4}
    group = [candidate(name, flat(cost, 16, 0.4)) for name, cost in costs.items()]
    assert cheapest(group).not_clearly == ("near",)


def test_only_comparable_models_are_compared():
    candidates = [
        candidate("a", 1e-6),
        candidate("b", 2e-6, currency="EUR"),
        candidate("c", 3e-6, basis="serving"),
        candidate("few", 1e-9, samples=4),
        candidate(
            "disturbed", None, currency="", samples=0, contended_samples=7, outdated_samples=1
        ),
        candidate("seldom priced", flat(1e-9, samples=3)),
        candidate("unpriced", None, currency=""),
    ]
    groups, left_out = compared(candidates)
    assert [(g.currency, g.basis, len(g.placed)) for g in groups] == [
        ("EUR", "probe", 1),
        ("USD", "probe", 1),
        ("USD", "serving", 1),
    ]
    assert [out.reason for out in left_out] == [
        "too few samples: 4 of 5",
        "too few samples: 0 of 5; excluded: 7 contended, 1 of older software",
        "too few priced samples: 3 of 5",
        "it has no price",
    ]
    groups, left_out = compared(candidates, currency="EUR")
    assert [g.placed[0].candidate.name for g in groups] == ["b"]
    assert "its currency is USD, not EUR" in [out.reason for out in left_out]


def test_interval_of_two_spreads_is_that_of_welch():
    """Means 0 and 0.1, standard deviations 0.1 and 0.2 of 5 runs: 5.88 degrees of freedom."""
    unit = [-1.2649, -0.6325, 0.0, 0.6325, 1.2649]
    base, now = [math.exp(0.1 * x) for x in unit], [math.exp(0.1 + 0.2 * x) for x in unit]
    found = change_of(base, now, is_paired=False)
    half = 2.459 * 0.1
    assert found == pytest.approx([math.expm1(0.1 + way * half) for way in (0, -1, 1)], abs=2e-3)
    assert change_of(now, now, is_paired=True) == (0.0, 0.0, 0.0)


def test_change_is_above_the_limit_only_where_it_is_an_increase():
    for change, wanted in (
        ((0.08, 0.01, 0.15), "more_expensive"),
        ((0.08, -0.01, 0.17), "inconclusive"),
        ((0.04, 0.01, 0.07), "inconclusive"),
        ((0.01, -0.03, 0.05), "within"),
        ((-0.2, -0.4, 0.0), "within"),
    ):
        assert verdict(ConfidenceInterval(*change), 0.05) == wanted, change
    # Half of the interval is 0.09 and may be 0.045, or the whole one 0.08 above zero.
    assert runs_needed(ConfidenceInterval(0.005, -0.085, 0.095), 0.05, 10) == 41
    assert runs_needed(ConfidenceInterval(0.08, -0.01, 0.17), 0.05, 10) == 14


def test_identical_devices_are_one_candidate_and_one_that_deviates_is_named():
    costs = {"gpu0": 1.0, "gpu1": 1.01, "gpu2": 1.3, "gpu10": 0.99, "gpu3": 5.0}
    hardware = {**dict.fromkeys(costs, "H100"), "gpu3": "L4"}
    found = on_identical(
        [
            *(
                candidate(f"m on {name}, batch 8", cost, device=name)
                for name, cost in costs.items()
            ),
            candidate("m on gpu0, batch 9", 1.0, throttled_samples=2),
            candidate("m on gpu1, batch 9", None, device="gpu1", throttled_samples=0),
            candidate("chat", 1.0, basis="serving"),
        ],
        hardware,
    )
    assert [(one.name, one.samples) for one in found] == [
        ("m on gpu0, gpu1, gpu2 and gpu10, batch 8", 40),
        ("m on gpu3, batch 8", 10),
        ("m on gpu0 and gpu1, batch 9", 20),
        ("chat", 10),
    ]
    merged, alone, priced, _ = found
    assert (merged.cost_per_inference.value, alone.members) == (pytest.approx(1.005), ())
    assert deviation_words(merged) == "gpu2 costs 29.4 % more than the others"
    assert (priced.cost_per_inference.value, priced.excluded) == (1.0, "2 throttled on gpu0")
