"""What a service's load costs against the load curve of its server, by hand-computed examples."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint
from costprobe.savings.evidence import LoadEvidence
from costprobe.savings.savings import savings
from costprobe.serving.tokens import LengthMix
from costprobe.ui.savings import position_lines
from fakes.cases import check_all
from fakes.past import MONDAY, device, history, price, service

SLO = {"ttft_p90": 500.0}
DAYS = 7
NOW_NS = (MONDAY + DAYS * 24) * 3600 * NS_PER_S
# 3.60 an hour: a thousandth a second, 2,628 a month.
MONTH = Decimal(2628)


def point(loop, number, load, tokens_per_s, ttft_p90_ms, **more):
    figures = {
        "tokens_out_per_s": tokens_per_s,
        "throughput_per_s": tokens_per_s / 100,
        "ttft_p90_ms": ttft_p90_ms,
        "tokens_in": 200.0,
        "tokens_out": 100.0,
        "requests": 400.0,
        "errors": 0.0,
        # All requests take the same time: the throughput has no uncertainty.
        "latency_p50_ms": 1000.0,
        "latency_p90_ms": 1000.0,
        "latency_mean_ms": 1000.0,
        "offered_per_s": None if loop == "closed" else tokens_per_s / 100,
        **more,
    }
    concurrency = load if loop == "closed" else None
    return LoadPoint(loop, number, concurrency, {**dict.fromkeys(FIGURES), **figures})


POINTS = (
    point("closed", 1, 1, 100.0, 100.0),
    point("closed", 2, 8, 600.0, 400.0),
    point("closed", 3, 64, 1000.0, 2000.0),
    point("open", 1, None, 250.0, 150.0),
    point("open", 2, None, 500.0, 250.0),
    point("open", 3, None, 800.0, 700.0),
)


def curve(points=POINTS, **more):
    ends = {"closed": "saturated", "open": "complete"}
    found = LoadCurve("llm", "gpu0", "USD", "abc", NOW_NS - 86_400 * NS_PER_S, SLO, points, ends)
    return replace(found, **more)


def evidence(replicas=2, **more):
    known = {
        "curve": curve(),
        "mix": LengthMix(200.0, 100.0),
        "fingerprint_then": "abc",
        "fingerprint_now": "abc",
        **more,
    }
    return LoadEvidence(replicas=replicas, **known)


def positioned(found, tokens_of_minute, *, days=DAYS, prices=None, idle_w=None, **more):
    """The position of a service on as many devices as it has replicas."""
    names = [f"gpu{index}" for index in range(found.replicas)]
    util_pct = 50.0 if idle_w is None else 0.0
    devices = [device(name, lambda _: util_pct, days) for name in names]
    if idle_w is not None:
        for hour in (hour for each in devices for hour in each.hours.values()):
            hour.energy_j, hour.power_s = idle_w * 3600, 3600.0
    served = service(tokens_of_minute, on=tuple(names), days=days, unit="tokens_out")
    past = history(
        *devices,
        served=[served],
        prices=prices and dict.fromkeys(names, prices),
        load_curves={"chat": found},
        **more,
    )
    (answer,) = [each for each in savings(past) if each.workload.services]
    return answer.load


def steady(per_s):
    return lambda _: per_s * 60


def test_cost_of_a_load_against_the_cheapest_point_within_the_service_level():
    # Two replicas do 240 tokens/s: each 120 of 1,000, 12 %. The cheapest point within 500 ms does 600.
    found = positioned(evidence(), steady(240.0)).cost
    assert found.saturation_share == pytest.approx(0.12)
    assert found.times_floor == pytest.approx(5.0)
    # 0.002 a second for 240 tokens, and 0.001 for 600.
    assert found.each == pytest.approx(0.002 / 240)
    assert found.each_floor == pytest.approx(0.001 / 600)
    assert (found.floor.text, found.cost_per_month) == ("8 in flight", 2 * MONTH)
    assert found.unused_per_month == 2 * MONTH * 4 / 5
    # The open loop meets it up to 500: one replica carries 240, between 250 and below: unknown.
    assert (found.limit_per_s, found.merge.replicas) == (500.0, 1)
    assert (found.merge.saving_per_month, found.merge.saving_low) == (MONTH, MONTH)
    assert found.merge.peak_share == pytest.approx(0.48)
    assert found.merge.at_peak_ms == {"ttft_p90": None}
    assert found.merge.times_floor == pytest.approx(2.5)


def peaks(every):
    """1,400 tokens/s in some minutes, and 100 in the others."""
    return lambda minute: 60 * (1400 if minute % every == 0 else 100)


def test_replicas_carry_the_peak_and_uncertainty_widens_the_range():
    usual = [0.05] * 95
    seen = evidence(3, kv_cache_shares=[*usual, *[0.3] * 5], requests_waiting=[0.0] * 100)
    full = replace(seen, kv_cache_shares=[*usual, *[0.4] * 5])
    assumed = price("3.6", "assumed")
    rate = replace(assumed.rate, low_per_hour=Decimal("1.8"), high_per_hour=Decimal("7.2"))
    assumed = replace(assumed, rate=rate)
    # Replicas left, and months of one that are saved: at least, expected, and at most.
    cases = (
        # 5 % of the minutes: three of four replicas for 500 each. The 95th percentile is within rounding
        # of the quiet minutes: one suffices for it.
        ("frequent peaks", evidence(4), peaks(20), {}, 3, (1, 1, 3)),
        # Half of them at 0.5 %: the highest minute needs three, the 99th percentile one.
        ("rare peaks", evidence(4), peaks(200), {}, 1, (1, 3, 3)),
        # Answers are 20 % longer: a replica does 500 / 1.2 = 417 at least, and 900 need three.
        ("longer", evidence(4, mix=LengthMix(200.0, 120.0)), steady(900.0), {}, 2, (1, 2, 2)),
        ("assumed price", evidence(4), steady(900.0), {"prices": [assumed]}, 2, (1, 2, 4)),
        # 240 tokens/s need one replica of three by the load; by 40 % of their KV caches two.
        ("KV cache", seen, steady(240.0), {}, 1, (2, 2, 2)),
        ("full KV cache", full, steady(240.0), {}, 2, (1, 1, 1)),
    )  # fmt: skip

    def check(_, found, load, more, replicas, months):
        merge = positioned(found, load, **more).cost.merge
        saved = merge.saving_low, merge.saving_per_month, merge.saving_high
        assert (merge.replicas, saved) == (replicas, tuple(MONTH * each for each in months))

    check_all(check, cases)
    merge = positioned(evidence(4), peaks(20)).cost.merge
    assert merge.at_peak_ms == {"ttft_p90": pytest.approx(150 + 100 * (1400 / 3 - 250) / 250)}
    merge = positioned(seen, steady(240.0)).cost.merge
    assert "the KV cache fills in proportion to the load" in merge.assumptions


def test_replicas_are_kept_and_the_reason_is_stated():
    def check(reason, kept, per_s, **more):
        found = positioned(kept, steady(per_s), **more)
        assert (found.cost.merge, found.cost.kept_because) == (None, reason)

    usual = [0.05] * 95
    seen = evidence(3, kv_cache_shares=[*usual, *[0.7] * 5], requests_waiting=[0.0] * 100)
    queued = {"kv_cache_shares": [0.05] * 100, "requests_waiting": [*[0.0] * 95, *[3.0] * 5]}
    needed = "each is needed at the peak"
    check_all(
        check,
        [
            ("it is one replica", evidence(1), 120.0),
            (needed, evidence(), 900.0),
            (
                "its peak is above the highest load that meets the service level",
                evidence(),
                1100.0,
            ),
            # Only the closed loop's first point is within 120 ms: 100 tokens/s.
            (needed, evidence(curve=curve(bounds_ms={"ttft_p90": 120.0})), 150.0),
            (f"{needed} (KV cache: 70 % in use)", seen, 240.0),
            ("requests wait for a server at its peak", replace(seen, **queued), 240.0),
        ],
    )
    check("70 % of a week of its work must be known", evidence(), 240.0, days=2)
    together = "gpu0 and gpu1 are one host: none is released alone"
    check(together, evidence(), 240.0, rented_together=[("gpu0", "gpu1")])
    one = "\n".join(position_lines(positioned(evidence(1), steady(120.0)), "USD"))
    assert "$2,100 of $2,630 a month ($2,100 to $2,100) pay for capacity that it does not" in one


def test_no_figure_without_a_curve_that_describes_the_requests():
    def check(words, per_s=9.0, **more):
        found = positioned(evidence(**more), steady(per_s))
        assert found.cost is None
        assert words in found.problem
        assert next(iter(position_lines(found, "USD"))).startswith("load curve: no advice: ")

    check("above the measured range: 1,050/s of a replica, and at most 1,000/s", 2100.0)
    check("no requests in the last seven days", 0.0)
    check("curve is stale", fingerprint_now="new")
    check("serves 2 models", models=2)
    longer = LengthMix(200.0, 130.0)
    check("by more than 25 %: prompts +0 %, answers +30 %", mix=longer)
    check("lengths of its requests", mix=None)
    check("no measured load is known", curve=curve(bounds_ms={"ttft_p90": 50.0}))
    elsewhere = "2 servers of it on 2 devices, and the curve was measured on gpu0+gpu1"
    check(elsewhere, curve=curve(device="gpu0+gpu1"))


def test_electricity_counts_where_it_is_billed():
    # 0.0001 per J; the point takes 0.5 J a token, and idle devices 100 W.
    powered = curve(
        tuple(
            replace(each, figures={**each.figures, "energy_per_million_tokens_out_j": 5e5})
            for each in POINTS
        )
    )
    billed = [price(electricity_per_j=1e-7)]
    found = positioned(evidence(curve=powered), steady(240.0), prices=billed, idle_w=100.0).cost
    assert found.each_floor == pytest.approx(0.001 / 600 + 0.5e-7)
    assert found.each == pytest.approx((0.002 + 200 * 1e-7) / 240)
    saved = float(found.merge.saving_per_month)
    assert saved == pytest.approx(2628 + 100 * 730 * 3600 * 1e-7, abs=0.01)
