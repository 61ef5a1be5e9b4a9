"""Statistics of timed runs, and the rule that stops them."""

import math
import random

import pytest
from costprobe_probes.stats import (
    StopRule,
    quantile,
    rel_std_err,
    summary,
)
from hypothesis import given
from hypothesis import strategies as st


def test_median_mean_and_spread_of_samples():
    found = summary([1.0, 2.0, 3.0, 10.0])
    assert found["p50"] == 2.5
    assert found["mean"] == 4.0
    # Sample standard deviation of 1, 2, 3, 10 is 4.0825.
    assert found["cv"] == pytest.approx(1.0206, abs=1e-4)


@pytest.mark.parametrize(
    ("samples", "names"),
    [
        (1, {"p50", "mean", "cv"}),
        (63, {"p50", "mean", "cv"}),
        (64, {"p50", "mean", "cv", "p90"}),
        (661, {"p50", "mean", "cv", "p90"}),
        (662, {"p50", "mean", "cv", "p90", "p99"}),
    ],
)
def test_percentile_needs_enough_samples(samples, names):
    assert set(summary([float(i + 1) for i in range(samples)])) == names


def test_quantiles_interpolate():
    assert quantile([1.0, 2.0], 0.9) == pytest.approx(1.9)
    assert quantile([5.0], 0.99) == 5.0


@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=800))
def test_percentiles_are_ordered_and_within_the_samples(latencies_ms):
    found = summary(latencies_ms)
    ordered = [found[name] for name in ("p50", "p90", "p99") if name in found]
    assert ordered == sorted(ordered)
    assert min(latencies_ms) <= found["p50"] <= max(latencies_ms)


def test_error_of_few_blocks_is_unknown():
    assert rel_std_err([1.0, 1.1, 0.9]) == math.inf


def test_batch_means_account_for_correlated_runs():
    rng = random.Random(4)
    level, runs = 100.0, []
    for index in range(2000):
        if index % 100 == 0:
            level = rng.gauss(100.0, 5.0)
        runs.append(rng.gauss(level, 1.0))
    naive = rel_std_err(runs)
    batched = rel_std_err([sum(runs[i : i + 100]) / 100 for i in range(0, 2000, 100)])
    assert batched > 3 * naive


def feed(rule, block_means, runs_a_block=10, seconds_a_block=0.1):
    for index, mean in enumerate(block_means, start=1):
        reason = rule.update([mean], index * runs_a_block, index * seconds_a_block)
        if reason:
            return reason, index * runs_a_block
    return "", len(block_means) * runs_a_block


def test_runs_with_little_noise_stop_at_the_minimum():
    rng = random.Random(1)
    means = [rng.gauss(10, 0.05) for _ in range(500)]
    assert feed(StopRule(300, 60), means) == ("runs", 300)


def test_nonstationary_noise_stops_as_settled():
    # A random walk: more runs do not reduce the error of the mean.
    rng = random.Random(2)
    level, means = 10.0, []
    for _ in range(500):
        level += rng.gauss(0, 0.5)
        means.append(abs(level) + 1)
    reason, runs = feed(StopRule(300, 1e9), means)
    assert reason == "settled"
    assert runs >= 600


def test_time_cap_stops_the_runs():
    assert feed(StopRule(300, 0.5), [1.0] * 100) == ("time_cap", 50)
