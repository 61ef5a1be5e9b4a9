"""One pure function turns a probe run into rows, events and the state for the next run."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.columns import columns_of
from costprobe.core.records import NS_PER_S, Energy
from costprobe.pricing.book import Prices, Terms
from costprobe.pricing.plans import Rate
from costprobe.probing.cost import ProbeState, account_run
from costprobe.probing.roofline import PassLimit
from costprobe.probing.rows import report_document, run_points
from costprobe.ui.cli.views.status_lines import probe_line
from costprobe.ui.text import per_million_tokens
from costprobe.unit_costs.compare import probe_candidates
from fakes.runs import probe_run
from record.record_files import check_outcomes

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


def test_runs_become_rows_events_and_a_line():
    """The record has what is made of the last of some runs, each by its changes; see `record_files`."""

    def outcome(text):
        state, time_ns = ProbeState(), TIME_NS
        for changes in json.loads(text)["runs"]:
            now, then = changes.pop("now", "3.6"), changes.pop("then", None)
            limit = changes.pop("limit", None)
            run = replace(RUN, **changes, **({"limit": PassLimit(**limit)} if limit else {}))
            prices = Prices(now and terms(now), then and terms(then), None)
            accounted = account_run(run, prices, state, time_ns)
            state, time_ns = accounted.state, time_ns + 300 * NS_PER_S
        rows = rows_of(accounted)
        costs = [row for row in rows if row.measurement == "cost"]
        candidate = probe_candidates(columns_of(rows[:1]), columns_of(costs), {})[0]
        document = report_document(accounted.run)
        events = [
            [each.kind, each.title, each.cause, each.before, each.after]
            for each in accounted.events
        ]
        fields = {row.measurement: [dict(row.tags), dict(row.fields)] for row in rows}
        return [
            events,
            fields,
            probe_line(document),
            per_million_tokens(candidate),
            document["cost"],
        ]

    check_outcomes("accounted_runs.json", outcome)


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
    # An unknown batch of before is no change.
    unknown = replace(state, platform=replace(state.platform, batch=0))
    assert account(RUN, unknown).events == ()
