"""Probes stay within their share of device time, which includes regular energy windows."""

import pytest
from costprobe.probing.jobs import PART_S, DutyBudget
from hypothesis import given
from hypothesis import strategies as st


def simulate(budget, *, every_s, full_s, latency_s, hours=6):
    """Run a probe by its plans; return the plans and the largest busy time in s within any hour."""
    plans, runs, most_s, now_s = [], [], 0.0, 0.0
    for _ in range(int(hours * 3600 / every_s)):
        known = bool(runs)
        plan = budget.plan("p", now_s, full_s if known else 0.0, latency_s if known else 0.0)
        plans.append(plan)
        if plan != "skip":
            busy_s = full_s if plan == "full" else latency_s
            budget.record("p", now_s, busy_s, energy=plan == "full")
            runs.append((now_s, busy_s))
        most_s = max(most_s, sum(busy for at, busy in runs if at > now_s - 3600))
        now_s += every_s
    return plans, most_s


def test_default_budget_has_hourly_energy_and_frequent_latency():
    # 36 s an hour; 12 runs of 2.5 s or, with energy, 9 s.
    plans, most_s = simulate(DutyBudget(0.01), every_s=300, full_s=9.0, latency_s=2.0)
    assert most_s <= 36
    for hour in range(6):
        assert "full" in plans[hour * 12 : hour * 12 + 12]
    assert plans.count("latency") > plans.count("full")
    assert plans.count("skip") < len(plans) / 3


def test_small_budget_keeps_energy_runs_and_skips_others():
    plans, most_s = simulate(DutyBudget(0.005), every_s=60, full_s=12.0, latency_s=4.0)
    assert most_s <= 18
    assert plans.count("full") >= 5
    assert plans.count("skip") > len(plans) / 2


def test_oversized_energy_run_runs_once_and_latency_continues():
    plans, _ = simulate(DutyBudget(0.01), every_s=300, full_s=60.0, latency_s=3.0)
    assert plans[0] == "full"
    assert plans.count("full") == 1
    assert "latency" in plans


def test_used_time_expires_after_the_window():
    budget = DutyBudget(0.01)
    budget.record("p", 0.0, 36.0, energy=True)
    assert budget.used_share(10.0) == 0.01
    assert budget.plan("p", 10.0, 8.0, 2.0) == "skip"
    assert budget.used_share(3601.0) == 0.0


@given(
    st.floats(0.001, 0.2),
    st.sampled_from([10, 60, 300]),
    st.floats(5.5, 60),
    st.floats(0.5, 20),
)
def test_no_hour_exceeds_the_budget_except_by_the_first_run(share, every_s, full_s, latency_s):
    allowed_s = share * 3600
    _, most_s = simulate(
        DutyBudget(share), every_s=every_s, full_s=full_s, latency_s=latency_s, hours=3
    )
    assert most_s <= max(allowed_s, full_s) + 1e-6


def test_every_probe_of_a_device_gets_its_energy_windows():
    budget = DutyBudget(0.02)
    full_s, latency_s = 9.0, 2.0
    carried, spent = {"a": 0, "b": 0, "c": 0}, []
    for run in range(6 * 12):
        for probe in carried:
            now_s = run * 300.0
            plan = budget.plan(probe, now_s, full_s, latency_s)
            if plan != "skip":
                busy_s = full_s if plan == "full" else latency_s
                budget.record(probe, now_s, busy_s, energy=plan == "full")
                spent.append((now_s, busy_s))
            carried[probe] += plan == "full"
            assert sum(busy for at, busy in spent if at > now_s - 3600) <= 72 + 1e-6
    assert min(carried.values()) >= 5


def test_frequent_runs_take_bounded_memory():
    budget = DutyBudget(0.5)
    for second in range(10_000):
        budget.record("p", float(second), 0.25, energy=False)
    assert len(budget.runs(10_000.0)) <= 3600 / PART_S + 1
    assert budget.used_share(10_000.0) == pytest.approx(0.25, rel=0.02)
