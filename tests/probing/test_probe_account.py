"""One pure function turns a probe run into rows, events and the state for the next run."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.columns import columns_of
from costprobe.core.money import money
from costprobe.core.records import NS_PER_S, Energy
from costprobe.pricing.book import Prices, Terms
from costprobe.pricing.plans import Rate
from costprobe.probing.cost import ProbeState, account_run
from costprobe.probing.roofline import PassLimit
from costprobe.probing.rows import report_document, run_points
from costprobe.ui.amounts import si
from costprobe.ui.cli.views.status_lines import probe_line
from costprobe.ui.text import per_million_tokens
from costprobe.unit_costs.compare import probe_candidates
from fakes.runs import probe_run

TIME_NS = 1_780_000_000 * NS_PER_S
RUN = probe_run(
    software={"torch": "2.13"}, window_energy=Energy(2000.0, "counter", 0.06), board="GPU-1"
)


def terms(per_hour, currency="USD"):
    rate = Rate("on_demand", currency, Decimal(per_hour), electricity_included=True, source="test")
    return Terms(rate, 0.0)


def account(run, before=None, *, now="3.6", then=None, time_ns=TIME_NS):
    prices = Prices(terms(now), then and terms(then), None)
    return account_run(run, prices, before or ProbeState(), time_ns)


def rows_of(accounted):
    return run_points(accounted.run, {"host": "h"})


def test_next_run_uses_the_previous_state():
    first = account(RUN)
    without = replace(RUN, window_energy=None, energy_absent="no window")
    later_ns = TIME_NS + 300 * NS_PER_S
    second = account(without, first.state, now="7.2", then="3.6", time_ns=later_ns)
    assert second.run.energy.method == "last_known"
    assert second.run.rolled["1h"].samples == 2
    cost = second.run.cost
    assert (cost.per_inference, cost.reference) == (pytest.approx(2e-5), pytest.approx(1e-5))
    assert [event.kind for event in second.events] == ["price"]


def test_spread_between_runs_is_that_of_the_same_software_board_and_batch():
    state, shown = ProbeState(), []
    for number in range(60):
        latency_ms = {**RUN.latency_ms, "p50": 4.0 * (1 + 0.01 * (number % 5 - 2))}
        changes = {"latency_ms": latency_ms, "latency_rel_err": 0.001}
        busy = {"contended": True} if number == 30 else {}
        run = replace(RUN, **changes, activity=busy)
        accounted = account(run, state)
        # As after a restart.
        state = replace(
            ProbeState.from_document(accounted.state.document()), costs=accounted.state.costs
        )
        shown.append(rows_of(accounted)[0].fields.get("latency_spread"))
    assert shown[:9] == [None] * 9
    assert shown[-1] == pytest.approx(0.02)
    assert len(state.medians_ms) == 50
    line = probe_line(report_document(accounted.run))
    assert "p50 4.080 ms (±0.1 % within this run, ±2 % between runs)  " in line
    for change in ({"batch": 16}, {"fingerprint": "bb"}):
        other = account(replace(RUN, **change), state)
        assert other.state.medians_ms == (4.0,)
    unsteady = account(replace(RUN, unsteady=True))
    assert "unsteady" in probe_line(report_document(unsteady.run))
    assert rows_of(unsteady)[0].fields["unsteady"] is True


def test_contended_run_has_the_passes_that_count_and_its_range():
    """An inference takes 10 ms, a pass 80 ms: $10 per million at $3.6/h."""
    words = "contended: others used the device"
    fields = {"pass_low_ms": 70.0, "pass_high_ms": 100.0}
    run = replace(RUN, activity={"contended": True}, **fields)
    before = account(RUN)
    probe, cost, _ = rows_of(account(replace(run, inferences=100), before.state))
    assert probe.fields["contended"] is cost.fields["contended"] is True
    assert cost.fields["rolling_1h"] == pytest.approx(1e-5), "of runs without a neighbour"
    assert not {"contended", "samples_delayed"} & {*rows_of(before)[0].fields}
    line = probe_line(report_document(account(run).run))
    wanted = f"{words}; $8.75 to $12.5 per million, from its fastest pass to its slowest part"
    assert line.endswith(wanted)
    run = replace(run, samples=612, samples_delayed=1288)
    accounted = account_run(run, Prices(None, None, None), ProbeState(), TIME_NS)
    assert rows_of(accounted)[0].fields["samples_delayed"] == 1288
    line = probe_line(report_document(accounted.run))
    passes = "from the 612 of 1,900 passes that they did not delay"
    assert line.endswith(f"{words}; {passes}; 70.000 to 100.000 ms a pass, in the parts of these")


def test_changed_software_and_board_are_one_event():
    before = account(RUN).state
    other = {"fingerprint": "bb", "software": {"torch": "2.14"}, "board": "GPU-2"}
    (event,) = account(replace(RUN, **other), before).events
    assert (event.kind, event.cause) == ("software", "board, torch")
    # Nothing changed for a board without a persistent identity.
    state, titles = ProbeState(), []
    for board in ("", "GPU-1", "GPU-1", "", "GPU-1", "GPU-2", "", "GPU-2"):
        accounted = account(replace(RUN, board=board), state)
        state = accounted.state
        titles += [(event.title, event.before, event.after) for event in accounted.events]
    assert titles == [("encoder on gpu0 runs on another board", "board GPU-1", "board GPU-2")]


def test_another_batch_is_an_event_and_an_unknown_one_is_none():
    before = account(RUN).state
    (event,) = account(replace(RUN, batch=7), before).events
    assert event.title == f"{RUN.probe} on {RUN.device} runs on another batch"
    assert (event.before, event.after) == (f"batch {RUN.batch}", "batch 7")
    unknown = replace(before, platform=replace(before.platform, batch=0))
    assert account(RUN, unknown).events == ()


def test_physical_limit_of_a_run_is_beside_its_cost():
    # A pass of 10 ms that would take 2 ms on an H100: four fifths of the hardware's cost go.
    limit = PassLimit(mfu_pct=1.0, mbu_pct=20.0, roofline_ms=2.0, cost_share=0.2)
    accounted = account(replace(RUN, window_tokens_out=1000.0, tokens_out=1.0, limit=limit))
    probe, cost, _ = rows_of(accounted)
    assert {name: probe.fields[name] for name in limit.fields()} == limit.fields()
    paid = cost.fields
    expected = 0.2 * paid["cost_hardware"] + paid["cost_energy"]
    assert paid["cost_roofline"] == pytest.approx(expected)
    document = report_document(accounted.run)
    per_million = document["cost"]["cost_roofline_per_million_tokens_out"]
    assert per_million == pytest.approx(expected * 1e6)
    line = probe_line(document)
    assert f"per million, {money(per_million, 'USD')} at the board's bandwidth" in line
    assert line.endswith("MFU 1 %, MBU 20 %")
    unknown = report_document(account(RUN).run)
    assert unknown["cost"]["cost_roofline"] is None
    assert "mfu_pct" not in unknown["fields"]


def test_run_without_price_has_no_cost_and_keeps_the_reference():
    before = account(RUN).state
    prices = Prices(None, None, None)
    accounted = account_run(RUN, prices, before, TIME_NS)
    assert accounted.run.cost is None
    assert [row.measurement for row in rows_of(accounted)] == ["probe", "software"]
    assert accounted.state.reference == before.reference


def test_tokens_of_a_run_have_rates_energy_and_cost():
    decoded = {"window_tokens_out": 1000.0, "tokens_out": 1.0}
    prefilled = {"window_tokens_in": 512_000.0, "tokens_in": 512.0}
    for tokens, direction, rate, per_million_j, per_million in (
        (decoded, "out", "100 tokens out/s", 2e6, 10.0),
        (prefilled, "in", "51,200 tokens in/s", 3906.25, 0.01953125),
    ):
        accounted = account(replace(RUN, **tokens))
        probe, cost, _ = rows_of(accounted)
        name = f"tokens_{direction}"
        assert probe.fields[f"energy_per_million_{name}_j"] == pytest.approx(per_million_j)
        assert cost.fields[f"cost_per_million_{name}"] == pytest.approx(per_million)
        other = "tokens_in" if direction == "out" else "tokens_out"
        assert not {key for key in (*probe.fields, *cost.fields) if other in key}
        energy, price = si(per_million_j / 1e6, "J"), money(per_million, "USD")
        assert f"{rate}, {energy} per token, {price} per mill" in probe_line(
            report_document(accounted.run)
        )
        candidate = probe_candidates(columns_of([probe]), columns_of([cost]), {})[0]
        shown = f"{price} {direction}; {si(per_million_j, 'J')} {direction}"
        assert per_million_tokens(candidate) == shown


def test_software_of_a_run_is_in_tags_and_odd_versions_are_left_out():
    software = {"driver": "560.28", "torch": "2.13.0+cu129", "weights": "3f", "cuda": "x\n=1"}
    run = replace(RUN, software={**software, "python": "3.11"})
    (row,) = [row for row in rows_of(account(run)) if row.measurement == "software"]
    own = {"host": "h", "device": RUN.device, "probe": RUN.probe}
    wanted = {"driver": "560.28", "torch": "2.13.0+cu129", "weights_hash": "3f"}
    assert (row.tags, row.fields) == ({**own, **wanted}, {"probe_runs": 1})
    served = replace(RUN, software={"server": "vllm"})
    assert "software" not in {row.measurement for row in rows_of(account(served))}
