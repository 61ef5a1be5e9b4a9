"""A load curve: its loops, its cheapest point within a service level, its front, and its rows."""

import json
from dataclasses import asdict, replace
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


def test_cheapest_point_meets_every_bound_and_loops_end_at_saturation_or_errors():
    """The record has the cheapest point, the front, which points are within the bounds, and the output."""

    def figures(text):
        case = json.loads(text)
        points = [point(*own, **more) for *own, more in case["points"]]
        made = curve(*points, bounds_ms=case["slo"], currency=case["currency"])
        front = [f"{each.loop} {each.number}" for each in made.front]
        meets = [each.meets(made.bounds_ms) for each in points]
        cheapest = made.cheapest and made.cheapest.number
        return [cheapest, front, meets, loop_end(points), shown(made)]

    check_outcomes("load_curves.json", figures)


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
    """The record has the change to the last curve, and the newest shift at each; see `record_files`."""

    def changes(text):
        curves = []
        for one in json.loads(text)["curves"]:
            factors, day = one.pop("factors"), one.pop("day")
            fingerprint = one.pop("fingerprint", "abc")
            figures = {"tokens_out": 50.0, **one}
            points = [
                point(n, 100.0 * n * factor, 1.0, **figures) for n, factor in enumerate(factors, 1)
            ]
            time_ns = day * 86_400 * NS_PER_S
            curves.append(replace(curve(*points), time_ns=time_ns, fingerprint=fingerprint))
        change = curve_change(curves[0], curves[-1])
        shifts = [newest_shift(curves[: n + 1]) for n in range(len(curves))]
        return [
            change and asdict(change),
            [each and [each.is_back, each.since_ns, each.baseline.time_ns] for each in shifts],
        ]

    check_outcomes("load_shifts.json", changes)


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
