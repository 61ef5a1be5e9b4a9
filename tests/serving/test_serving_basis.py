"""Cost per request and per token in production, by hand-computed examples."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import service_cost
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.rows import window_points
from costprobe.serving.tokens import TokenWeighing, Weights
from fakes.cases import check_all
from hypothesis import given
from hypothesis import strategies as st

HOUR_NS = 3600 * NS_PER_S
ALONE = (Claim("chat"),)
ONE_TO_FOUR = TokenWeighing(Weights(1.0, 4.0))
CHAT = Counts(
    requests=1000,
    errors=3,
    tokens_in=500_000,
    tokens_out=250_000,
    cached_tokens=100_000,
    prefill_s=30.0,
    decode_s=90.0,
)


def window(problems=(), missing=(), **models):
    return ServedWindow("chat", "vllm", 0, HOUR_NS, models, tuple(problems), tuple(missing))


def allocated(*devices, claims=ALONE, busy_s=900.0):
    return {
        name: DeviceBill(
            allocate(DeviceUse(name, 3600.0, Decimal(4), Decimal(1), busy_s, claims=claims)),
            "owned",
            "EUR",
            0.25,
        )
        for name in devices
    }


def cost_of(served, devices=("gpu0",), **more):
    return service_cost(served, devices, allocated(*devices, **more), ONE_TO_FOUR, HOUR_NS)


def rows_of(found, measurement):
    return [row for row in window_points(found, {"host": "h"}) if row.measurement == measurement]


def test_a_cached_token_has_a_price_of_its_own_and_saves_the_rest_of_a_fresh_one():
    counts = Counts(requests=10, tokens_in=500_000, cached_tokens=400_000, tokens_out=250_000)
    quarter = TokenWeighing(Weights(1.0, 4.0, 0.25))

    def priced(weighing, **more):
        found = service_cost(
            window(m=replace(counts, **more)), ("gpu0",), allocated("gpu0"), weighing
        )
        (row,) = rows_of(found, "cost")
        names = ("fresh", "cached", "out")
        prices = [row.fields.get(f"cost_per_million_tokens_{name}") for name in names]
        saved, share = row.fields.get("cost_cache_saved"), row.fields.get("cached_share")
        return pytest.approx([*prices, saved, share], nan_ok=True)

    # 100,000 x 1, 400,000 x 0.25 and 250,000 x 4: 1/12, 1/12 and 10/12 of 5.
    assert priced(quarter) == [5 / 1.2, 5 / 4.8, 5 / 0.3, (5 / 1.2 - 5 / 4.8) * 0.4, 0.8]
    # Without a measured weight a cached token is free: 1/11 and 10/11 of 5.
    free = 5 / 1.1
    assert priced(ONE_TO_FOUR) == [free, 0.0, 5 / 0.275, free * 0.4, 0.8]
    # Device time that the engine measures: the prefill's quarter in two halves.
    timed = {"prefill_s": 30.0, "decode_s": 90.0}
    assert priced(quarter, **timed) == [6.25, 6.25 / 4, 15.0, 6.25 * 0.75 * 0.4, 0.8]
    # Nothing was cached, nothing but cached tokens was read, and cached tokens are not counted.
    assert priced(quarter, cached_tokens=0) == [10 / 3, None, 40 / 3, None, 0.0]
    alone = priced(quarter, cached_tokens=500_000, tokens_out=0)
    assert alone == [None, 10.0, None, None, 1.0]
    assert priced(quarter, cached_tokens=None) == [10 / 3, None, 40 / 3, None, None]


def counts_of(*values):
    names = ("requests", "tokens_in", "tokens_out", "compute_s", "compute_request_s", "executions")
    return Counts(**dict(zip(names, values, strict=False)))


# What two models count, how a cost of 5 is divided by it, and the part of the first.
SPLITS = (
    (counts_of(1, None, None, 30.0), counts_of(100, None, None, 10.0), "time", "3.75"),
    (counts_of(1, 100, 100), counts_of(1, 500, 0), "tokens", "2.5"),
    (counts_of(3), counts_of(1), "assumed", "3.75"),
    (counts_of(0), counts_of(0), "assumed", "2.5"),
    # Each execution takes 10 ms: 1,000 of 32 requests at a time, and 1,000 of one. Seconds summed over
    # requests divide no cost as if they were measured.
    (
        counts_of(32_000, None, None, None, 320, 1000),
        counts_of(1000, None, None, None, 10.0, 1000),
        "executions",
        "2.5",
    ),
    (counts_of(32, None, None, None, 3.0), counts_of(1, None, None, None, 1), "assumed", "3.75"),
)


def test_models_share_the_cost_by_the_best_of_what_they_count():
    def check(first, second, split, cost):
        found = cost_of(window(a=first, b=second))
        assert (found.model_split, [one.model for one in found.models]) == (split, ["a", "b"])
        assert [one.cost for one in found.models] == [Decimal(cost), 5 - Decimal(cost)]

    check_all(check, SPLITS)


def test_passes_that_mix_prefill_and_decode_are_not_a_measured_split():
    counts = Counts(requests=1, tokens_in=400, tokens_out=100, prefill_s=1.0, decode_s=9.0)
    assert cost_of(window(m=counts)).total.tokens.split == "measured"
    total = cost_of(window(m=replace(counts, compute_s=5.0))).total
    assert (total.tokens.split, total.figures()["cost_tokens_in"]) == ("weights", 2.5)


def test_incomplete_window_has_no_cost():
    def has_none(served, claims, words, devices=("gpu0",)):
        bills = allocated("gpu0", claims=claims)
        found = service_cost(served, devices, bills, ONE_TO_FOUR)
        assert found.total is None
        assert words in found.problems[0]
        (row,) = window_points(found, {})
        assert row.fields["complete"] is False
        assert words in row.fields["problem"]

    missing = window(missing=["x_total (requests)"], m=Counts(tokens_in=5.0))
    cases = [
        (window(["http://a: HTTP 503"], m=CHAT), ALONE, "HTTP 503"),
        (window(m=CHAT), (Claim("chat"), Claim("other")), "set share"),
        (missing, ALONE, "x_total (requests)"),
        (window(m=Counts(errors=5.0)), ALONE, "neither its requests nor"),
        (window(m=CHAT), ALONE, "the cost of gpu1 is unknown", ("gpu0", "gpu1")),
    ]
    check_all(has_none, cases)


counts = st.floats(min_value=0, max_value=1e9)
models = st.builds(
    Counts,
    requests=counts,
    tokens_in=st.none() | counts,
    tokens_out=st.none() | counts,
    cached_tokens=st.none() | counts,
    prefill_s=st.none() | counts,
    decode_s=st.none() | counts,
    compute_s=st.none() | counts,
    compute_request_s=st.none() | counts,
    executions=st.none() | counts,
)


weighings = st.sampled_from(
    [
        *(ONE_TO_FOUR, TokenWeighing(), TokenWeighing(batch=0.1)),
        *(TokenWeighing(Weights(1.0, 4.0, 0.07)), TokenWeighing(Weights(0.0, 1.0, 0.3))),
    ]
)


@given(st.dictionaries(st.sampled_from("abcd"), models, min_size=1), st.floats(0, 3600), weighings)
def test_models_and_tokens_sum_to_the_cost_of_the_service(served, busy_s, weighing):
    found = service_cost(window(**served), ("gpu0",), allocated("gpu0", busy_s=busy_s), weighing)
    if found.models:
        assert sum(Fraction(one.cost) for one in found.models) == Fraction(found.total.cost)
        assert sum(Fraction(one.idle) for one in found.models) == Fraction(found.total.idle)
    for one in (found.total, *found.models):
        if one.tokens is not None:
            assert sum(map(Fraction, one.token_costs)) == Fraction(one.cost)
            kinds = ("fresh_tokens", "cached_tokens", "tokens_out")
            for kind, cost in zip(kinds, one.token_costs, strict=True):
                assert getattr(one.counts, kind) or not cost
