"""A load curve: its loops, its cheapest point within a service level, its front, and its rows."""

from dataclasses import replace
from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from costprobe.core.records import NS_PER_S, Energy
from costprobe.drift.load_curve import curve_change, newest_shift
from costprobe.pricing.book import Prices, Terms
from costprobe.pricing.plans import Rate
from costprobe.probing.cost import ProbeState, account_run
from costprobe.probing.load_curve import (
    FIGURES,
    LoadCurve,
    LoadPoint,
    LoadStep,
    curve_rows,
    curves_from_rows,
    load_plan,
    loop_end,
    measured_loops,
    point_of,
)
from costprobe.probing.load_settings import LoadConfig, length_document
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe.ui.cli.load import shown
from fakes.runs import probe_run
from record.record_files import check_outcomes

SLO = {"ttft_p90": 500.0, "tpot_p90": 50.0}


def point(number, tokens_per_s, cost, **figures):
    loop = figures.pop("loop", "closed")
    known = {
        "throughput_per_s": tokens_per_s / 100,
        "tokens_out_per_s": tokens_per_s,
        "cost_per_million_tokens_out": cost,
        "ttft_p90_ms": 100.0,
        "tpot_p90_ms": 20.0,
        "tokens_per_s_user": 50.0,
        "requests": 100.0,
        "errors": 0.0,
        **figures,
    }
    concurrency = 1 << (number - 1) if loop == "closed" else None
    return LoadPoint(loop, number, concurrency, {**dict.fromkeys(FIGURES), **known})


def curve(*points, bounds_ms=SLO, currency="USD"):
    ends = {"closed": "saturated"}
    return LoadCurve("chat", "gpu0", currency, "abc", 7 * NS_PER_S, bounds_ms, points, ends)


POINTS = (
    point(1, 100.0, 10.0, tokens_per_s_user=100.0),
    point(2, 190.0, 5.3, tokens_per_s_user=95.0),
    point(3, 300.0, 3.4, tokens_per_s_user=75.0, ttft_p90_ms=450.0),
    point(4, 310.0, 3.3, tokens_per_s_user=40.0, ttft_p90_ms=900.0),
    point(1, 80.0, 12.5, tokens_per_s_user=90.0, loop="open", offered_per_s=0.8),
)


def test_cheapest_point_meets_every_bound():
    assert curve(*POINTS).cheapest.number == 3
    assert curve(*POINTS, bounds_ms={}).cheapest.number == 4
    assert curve(*POINTS, bounds_ms={"ttft_p90": 50.0}).cheapest is None
    free = [point(n, rate, None) for n, rate in ((1, 100.0), (2, 190.0))]
    assert curve(*free, currency="").cheapest.number == 2


def test_a_bound_without_enough_requests_is_unknown_and_errors_are_late():
    for figures, meets in (
        ({}, True),
        ({"tpot_p90_ms": 51.0}, False),
        ({"ttft_p90_ms": None}, None),
        ({"ttft_p90_ms": None, "tpot_p90_ms": 51.0}, False),
        ({"errors": 10.0}, True),
        # More than a tenth is without an answer: the 90th percentile has none.
        ({"errors": 11.0}, False),
    ):
        assert point(1, 100.0, 1.0, **figures).meets(SLO) is meets, figures


def test_front_has_the_points_that_no_other_beats_in_cost_and_speed():
    assert [p.number for p in curve(*POINTS).front] == [1, 2, 3, 4]
    assert all(p.loop == "closed" for p in curve(*POINTS).front)


def test_loops_end_at_saturation_or_errors():
    def end(*rates, **figures):
        points = [point(n, rate, 1.0) for n, rate in enumerate(rates[:-1], 1)]
        return loop_end([*points, point(9, rates[-1], 1.0, **figures)])

    assert end(100.0) is None
    assert end(100.0, 106.0) is None
    assert end(100.0, 104.0) == "saturated"
    # Of all loads before, not only of the last one.
    assert end(100.0, 200.0, 150.0, 190.0) == "saturated"
    assert end(100.0, 200.0, errors=6.0) == "errors"
    assert end(100.0, loop="open", offered_per_s=1.1) is None
    assert end(100.0, loop="open", offered_per_s=1.2) == "saturated"


def test_open_loop_follows_at_shares_of_the_highest_rate():
    steps = []

    def measure(step):
        steps.append(step)
        rate = {1: 1.0, 2: 1.8, 4: 2.0, 8: 2.02}.get(step.concurrency) or step.rate_per_s
        return LoadPoint(
            step.loop, step.number, step.concurrency,
            {"throughput_per_s": rate, "offered_per_s": step.rate_per_s, "requests": 99.0},
        )  # fmt: skip

    loops = measured_loops(LoadConfig(), measure, lambda: "")
    assert [step.concurrency for step in steps if step.loop == "closed"] == [1, 2, 4, 8]
    rates = [step.rate_per_s for step in steps if step.loop == "open"]
    assert rates == pytest.approx([0.505, 1.01, 1.414, 1.616, 1.818])
    assert loops.ends == {"closed": "saturated", "open": "complete"}

    ended = measured_loops(LoadConfig(), measure, lambda: "production is slow")
    assert (ended.points, ended.ends, ended.stopped) == ([], {}, "production is slow")


def test_point_has_the_energy_and_the_cost_of_its_window():
    run = probe_run(
        batch=1, latency_ms={"p50": 400.0, "mean": 410.0, "cv": 0.1}, inferences=80.0,
        window_end_ns=20 * NS_PER_S, tags={"concurrency": "4"}, requests=82, errors={"timeout": 2},
        window_tokens_in=8000.0, window_tokens_out=4000.0, ttft_ms={"p50": 30.0},
        tpot_ms={"p50": 8.0}, goodput_per_s=3.5, window_energy=Energy(6000.0, "counter", 0.06),
    )  # fmt: skip
    # 3.6 an hour is a thousandth a second: 0.02 for the window.
    rate = Rate("on_demand", "USD", 3.6, electricity_included=True, source="test")
    priced, _, _ = account_run(run, Prices(Terms(rate, 0.0), None, None), ProbeState(), 1)
    found = point_of(LoadStep("closed", 1, concurrency=4), priced)
    expected = {
        "throughput_per_s": 4.0, "tokens_in_per_s": 400.0, "tokens_out_per_s": 200.0,
        "tokens_per_s_user": 125.0, "goodput_per_s": 3.5, "requests": 82.0, "errors": 2.0,
        "latency_p50_ms": 400.0, "ttft_p50_ms": 30.0, "ttft_p90_ms": None,
        "energy_per_inference_j": 75.0, "energy_rel_err": 0.06,
        "energy_per_million_tokens_in_j": 750_000.0, "energy_per_million_tokens_out_j": 1_500_000.0,
        "cost_per_inference": 0.00025, "cost_per_million_tokens_in": 2.5,
        "cost_per_million_tokens_out": 5.0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_rows_give_the_same_curve():
    measured = curve(*POINTS)
    rows = curve_rows(measured)
    assert {row.time_ns for row in rows} == {7 * NS_PER_S}
    assert [row.fields.get("meets_slo") for row in rows] == [True, True, True, False, True]
    assert [row.fields["cheapest"] for row in rows] == [False, False, True, False, False]
    older = [row.__class__(row.measurement, row.tags, row.fields, 5) for row in rows]
    assert curves_from_rows([*rows, *older], SLO)[1] == measured


def test_change_is_that_of_common_points_beyond_the_noise():
    def scaled(*factors, fingerprint="abc", **figures):
        points = [
            point(n, 100.0 * n * factor, 1.0, tokens_out=50.0, **figures)
            for n, factor in enumerate(factors, 1)
        ]
        return replace(curve(*points), fingerprint=fingerprint)

    before = scaled(1, 1, 1, 1)
    slower = curve_change(before, scaled(0.9, 0.88, 0.86, 0.7))
    assert (slower.throughput_pct, slower.points) == (pytest.approx(-13.0, abs=0.1), 4)
    assert (slower.is_persistent, slower.other_software) == (True, False)
    assert not curve_change(before, scaled(0.97, 0.96, 0.97, 0.98)).is_persistent
    # Two of four points: no common direction.
    assert not curve_change(before, scaled(0.8, 0.82, 1.1, 1.1)).is_persistent
    assert curve_change(before, scaled(1, 1, fingerprint="new")).other_software
    # Another length of answers is another workload.
    assert curve_change(before, scaled(1, 1, tokens_in=9.0)) is None
    assert curve_change(before, scaled(1)) is None


def test_uncertain_points_show_no_change():
    def uncertain(factor, requests, apart=0.9):
        spread = {"latency_p50_ms": 1000.0, "latency_p90_ms": 1640.8, "latency_mean_ms": 1000.0}
        points = [
            point(n, 100.0 * n * factor**own, 1.0, requests=requests, **spread)
            for n, own in zip(
                (1, 2, 3, 4), (1 - apart, 1 - apart, 1 + apart, 1 + apart), strict=True
            )
        ]
        return curve(*points)

    # A spread of half the mean: 1.96 x 0.5 / 10 of each point, 1 / sqrt(2) of that of four of both.
    found = curve_change(uncertain(1, 100.0), uncertain(0.94, 100.0))
    assert (found.uncertainty_pct, found.is_persistent) == (pytest.approx(6.93, abs=0.01), False)
    assert curve_change(uncertain(1, 400.0), uncertain(0.94, 400.0)).is_persistent


def test_shift_lasts_until_a_curve_is_back_or_it_is_accepted():
    def measured(day, factor, **figures):
        points = [point(n, 100.0 * n * factor, 1.0, **figures) for n in (1, 2, 3, 4)]
        return replace(curve(*points), time_ns=day * 86_400 * NS_PER_S)

    def shifts(*factors, every_days=1):
        curves = [measured(day * every_days, factor) for day, factor in enumerate(factors)]
        found = [newest_shift(curves[: n + 1]) for n in range(len(curves))]
        return ["" if x is None else "back" if x.is_back else "shift" for x in found]

    assert shifts(1, 0.98, 0.8, 0.81, 1.01, 1) == ["", "", "shift", "", "back", ""]
    # A further shift, and one of a new level after a week.
    assert shifts(1, 0.8, 0.6) == ["", "shift", "shift"]
    assert shifts(1, 0.8, 0.8, 1, every_days=5) == ["", "shift", "", "shift"]
    # A slow change adds up: 3 % of each curve.
    assert shifts(1, 0.97, 0.941, 0.913, 0.885) == ["", "", "shift", "", "shift"]
    before = [measured(0, 1), measured(1, 1)]
    found = newest_shift([*before, measured(2, 0.8)])
    assert (found.baseline, found.since_ns) == (before[0], before[1].time_ns)
    # Requests of another length are another level.
    assert newest_shift([*before, measured(2, 0.8, tokens_in=9.0)]) is None
    assert newest_shift([curve(*POINTS)]) is None


def test_terminal_names_the_cheapest_point_and_why_the_loop_ended():
    text = "\n".join(shown(curve(*POINTS)))
    assert "4 in flight costs least within ttft_p90 500 ms, tpot_p90 50 ms: $3.40 per" in text
    assert "closed loop: throughput no longer rose" in text
    assert "no point is within ttft_p90 1 ms" in shown(curve(*POINTS, bounds_ms={"ttft_p90": 1.0}))
    few = [point(1, 100.0, 1.0, ttft_p90_ms=None)]
    assert "set a longer window" in shown(curve(*few))[-1]


def test_terminal_shows_latency_of_a_server_without_tokens():
    without = {"tokens_out_per_s": None, "tokens_per_s_user": None, "energy_rel_err": 0.07}
    figures = {"latency_p50_ms": 20.0, "latency_p90_ms": 23.0, "energy_per_inference_j": 0.13}
    one = point(1, 0.0, None, **without, **figures, throughput_per_s=50.0, cost_per_inference=2e-5)
    lines = shown(curve(one, bounds_ms={"latency_p90": 50.0}))
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "load req/s latency p50 p90 p99 errors",
        "1 in flight * 50 20 23 - 0 %",
        "load mJ/req million req good/s",
        "1 in flight * 130 ±7 % $20.0 -",
        "* cheapest",
        "times in ms",
        "closed loop: throughput no longer rose",
        "1 in flight costs least within latency_p90 50 ms: $20.0 per million requests",
    ]
    slower = {**figures, "latency_p50_ms": 40.0}
    two = point(2, 0.0, None, **without, **slower, throughput_per_s=99.0, cost_per_inference=1e-5)
    chart = shown(curve(one, two))
    assert any("up: USD per million requests" in line for line in chart)


def served(**keys):
    return OpenAiProbeConfig(name="chat", kind="openai", model="m", url="http://h:1", **keys)


def test_plan_bounds_the_time():
    probe = served(load={"concurrencies": [1, 2], "rates": [3.0]}, timeout="10s")
    plan = load_plan(probe)
    assert (plan.points, plan.expected_s, plan.longest_s) == (3, 3 * 31.0, 3 * 101.0)


def test_settings_of_a_load_are_accepted_or_explained():
    """The record has the distribution of the tokens of a prompt, or the error; see `record_files`."""

    def tokens_in(text):
        (probe,) = parse(f'[[probe]]\nname = "chat"\n{text}\n', Path("costprobe.toml")).probe
        return length_document(probe.load.tokens_in)

    check_outcomes("load_settings.json", tokens_in, ConfigError)
