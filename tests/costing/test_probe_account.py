"""One pure function turns a probe run into rows, events and the state for the next run."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.records import NS_PER_S, Energy, ProbeResult
from costprobe.domain.costing.probe.account import Prices, ProbeState, account_run
from costprobe.domain.costing.probe.run import MeasuredRun
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.rate import Rate

TIME_NS = 1_780_000_000 * NS_PER_S
RESULT = ProbeResult(
    probe="encoder",
    device="gpu0",
    batch=8,
    latency_ms={"p50": 4.0, "mean": 4.1, "cv": 0.01},
    samples=300,
    stop_reason="runs",
    window_start_ns=0,
    window_end_ns=10 * NS_PER_S,
    inferences=1000,
    has_energy_window=True,
    h2d_ms=0.1,
    busy_s=12.0,
    fingerprint="aa",
    software={"torch": "2.13"},
)
RUN = MeasuredRun(RESULT, Energy(2000.0, "counter", 0.06), "", {}, every_s=300, board="GPU-1")


def terms(per_hour, currency="USD"):
    rate = Rate("on_demand", currency, Decimal(per_hour), electricity_included=True, source="test")
    return Terms(rate, 0.0)


def account(run, before=None, *, now="3.6", then=None, time_ns=TIME_NS):
    prices = Prices(terms(now), then and terms(then), None)
    return account_run(run, prices, before or ProbeState(), {"host": "h"}, time_ns)


def test_account_run_is_deterministic_and_changes_no_input():
    first = account(RUN)
    state = first.state
    assert account(RUN) == first
    assert account(RUN, state) == account(RUN, state)
    assert state == first.state
    assert [row.measurement for row in first.rows] == ["probe", "cost"]
    assert first.events == ()


def test_next_run_uses_the_previous_state():
    first = account(RUN)
    without = replace(RUN, energy=None, energy_absent="no window")
    later_ns = TIME_NS + 300 * NS_PER_S
    second = account(without, first.state, now="7.2", then="3.6", time_ns=later_ns)
    assert second.report.energy.method == "last_known"
    assert second.report.rolled["1h"].samples == 2
    cost = second.report.cost
    assert (cost.per_inference, cost.reference) == (pytest.approx(2e-5), pytest.approx(1e-5))
    assert [event.kind for event in second.events] == ["price"]
    assert [row.measurement for row in second.rows] == ["probe", "cost", "event"]


def test_contended_run_is_marked_and_left_out_of_rolling_costs():
    first = account(RUN)
    slow = replace(RUN, result=replace(RESULT, inferences=100), activity={"contended": True})
    second = account(slow, first.state, time_ns=TIME_NS + 300 * NS_PER_S)
    probe, cost = second.rows
    assert probe.fields["contended"] is cost.fields["contended"] is True
    assert cost.fields["cost_per_inference"] == pytest.approx(1e-4)
    assert cost.fields["rolling_1h"] == pytest.approx(1e-5)
    # A host that is never idle has a cost, too.
    (_, only) = account(slow).rows
    assert only.fields["rolling_1h"] == pytest.approx(1e-4)
    assert "contended" not in first.rows[1].fields


def test_changed_software_and_board_are_one_event():
    before = account(RUN).state
    other = replace(RESULT, fingerprint="bb", software={"torch": "2.14"})
    (event,) = account(replace(RUN, result=other, board="GPU-2"), before).events
    assert (event.kind, event.cause) == ("software", "board, torch")


def test_stored_state_survives_a_round_trip():
    state = account(RUN).state
    restored = ProbeState.from_document(state.document())
    assert (restored.reference, restored.platform) == (state.reference, state.platform)
    assert ProbeState.from_document(ProbeState().document()) == ProbeState()


def test_run_without_price_has_no_cost_and_keeps_the_reference():
    before = account(RUN).state
    prices = Prices(None, None, None)
    accounted = account_run(RUN, prices, before, {}, TIME_NS)
    assert accounted.report.cost is None
    assert [row.measurement for row in accounted.rows] == ["probe"]
    assert accounted.state.reference == before.reference
