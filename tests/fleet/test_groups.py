"""Groups of services over hosts: planted costs and counts, divided by role, over the hours that are known."""

from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.core.money import total_of
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.fleet.answers import FleetAnswers, fleet_period
from costprobe.fleet.groups import fleet_groups
from costprobe.fleet.spend import fleet_spend
from costprobe.fleet.unit_costs import fleet_unit_costs, unit_changes
from costprobe.ui.cli.fleet_questions import group_lines
from fakes import fleet
from fakes.command import called, of_fleet
from fakes.documents import checked
from fakes.fleet_answers import RowsReader
from fakes.fleet_groups import HOUR_S, START_S, disaggregated, member
from hypothesis import given
from hypothesis import strategies as st

HOURS = 24
END_S = START_S + HOURS * HOUR_S
ALL = range(HOURS)
SERVED = {"requests": 100.0, "tokens_in": 1e6, "cached_tokens": 2e5, "tokens_out": 1e5}


def answers_of(rows, *, hours=HOURS, labels=None):
    start_s = END_S - hours * HOUR_S
    period = fleet_period(start_s * NS_PER_S, END_S * NS_PER_S, (END_S + 60) * NS_PER_S)
    return FleetAnswers(RowsReader(rows), period, labels or {})


def groups_of(*rows, **more):
    return fleet_groups(answers_of([row for each in rows for row in each], **more))


def test_pools_of_a_disaggregated_server_are_counted_once():
    """16 an hour, half of it for input: 4 M tokens in are read by the only prefill server with a url."""
    (found,) = groups_of(disaggregated())
    assert (found.priced_h, found.period_h, found.problems) == (24, 24, ())
    assert (found.cost, found.cost_tokens_in, found.cost_tokens_out) == (384, 192, 192)
    assert [(one.role, one.cost, one.hosts, one.devices) for one in found.roles] == [
        ("prefill", 192, 2, 4),
        ("decode", 192, 2, 2),
    ]
    counts = (found.requests, found.tokens_in, found.cached_tokens, found.tokens_out)
    assert counts == pytest.approx((24_000, 96e6, 24e6, 12e6))
    prices = (found.cost_per_million_tokens_in, found.cost_per_million_tokens_out)
    assert (*prices, found.cost_per_request) == pytest.approx((2, 16, 0.016))
    assert found.error_share == pytest.approx(40 / 1040)
    joules = (found.energy_per_million_tokens_in_j, found.energy_per_million_tokens_out_j)
    assert joules == pytest.approx((2 * 3.6e6 / 4, 2 * 3.6e6 / 0.5))
    assert (found.idle_share, found.energy_j) == pytest.approx((0.25, 4 * 24 * 3.6e6))
    moved = (found.kv_transfer_bytes, found.kv_transfer_s, found.kv_transfer_failures)
    assert moved == pytest.approx((48e12, 2400, 48))
    assert (found.hosts, found.devices) == (4, 6)
    lines = [line.split() for line in group_lines([found], answers_of([]).period)]
    big = ["big", "$2.00", "$16.0", "$0.0160", "1.8", "14.4", "25", "%", "-", "24", "-", "-"]
    assert lines[2] == big
    assert ["big", "decode", "$192.00", "50.0", "%", "25", "%", "2", "2"] in lines
    assert (
        " ".join(lines[-1])
        == "big: 48 TB of KV cache transferred in 2,400 s of transfers, 48 failed"
    )


def test_layouts_of_groups_by_hand():
    """Cost an hour, of input and of output; tokens in and out; requests."""
    worker = {"counts": SERVED, "split": 0.4, "cost": 3.0}
    rest = {"cost": 2.0, "split": None}
    reads = {"requests": 100.0, "tokens_in": 9e5, "tokens_out": 100.0}
    layouts = {
        "an engine over two hosts": (
            [("a", "worker", worker), ("b", "worker", rest)],
            (2, 3, 1e6, 1e5, 100),
        ),
        "a replica, and an engine over two hosts": (
            [("a", "all", worker), ("b", "worker", worker), ("c", "worker", rest)],
            (3.2, 4.8, 2e6, 2e5, 200),
        ),
        "prefill beside servers that do both": (
            [("a", "prefill", {"counts": reads}), ("b", "all", worker)],
            (2.2, 1.8, 1.9e6, 1e5, 100),
        ),
        "only the decode pool is read": (
            [("a", "prefill", {}), ("b", "decode", worker)],
            (1, 3, 1e6, 1e5, 100),
        ),
        "no counts": ([("a", "worker", {}), ("b", "worker", {})], (None, None, None, None, None)),
    }
    wrong = []
    for name, (members, (of_input, of_output, tokens_in, tokens_out, requests)) in layouts.items():
        rows = [row for host, role, how in members for row in member(host, role, ALL, **how)]
        (found,) = groups_of(rows)
        expected = [of_input, of_output, tokens_in, tokens_out, requests]
        figures = [found.cost_tokens_in, found.cost_tokens_out]
        figures += [found.tokens_in, found.tokens_out, found.requests]
        a_day = [None if one is None else one * HOURS for one in expected]
        if [one and float(one) for one in figures] != pytest.approx(a_day):
            wrong.append((name, figures, a_day))
        if (found.cost_per_request is None) != (requests is None):
            wrong.append((name, found.cost_per_request))
    assert wrong == []
    assert found.problems == (
        "no requests and no output tokens: set url on one host of each engine",
    )


def test_service_level_counts_each_request_once():
    """Of pools the first token is that of prefill, unless it times none; other times are those of decode."""
    both = {"ttft_p90": (100.0, 95.0), "latency_p99": (100.0, 98.0)}
    late = {"ttft_p90": (100.0, 80.0), "latency_p99": (100.0, 99.0)}
    none = {"ttft_p90": (0.0, 0.0)}
    worker = {"counts": SERVED, "split": 0.4}
    layouts = {
        "both pools": (
            [("a", "prefill", both), ("b", "decode", late)],
            {"ttft_p90": (2400, 2280), "latency_p99": (2400, 2376)},
        ),
        "prefill that times none": (
            [("a", "prefill", none), ("b", "decode", late)],
            {"ttft_p90": (2400, 1920), "latency_p99": (2400, 2376)},
        ),
        "decode alone": (
            [("a", "prefill", {}), ("b", "decode", late)],
            {"ttft_p90": (2400, 1920), "latency_p99": (2400, 2376)},
        ),
        "replicas": (
            [("a", "all", both), ("b", "all", late)],
            {"ttft_p90": (4800, 4200), "latency_p99": (4800, 4728)},
        ),
    }
    wrong = []
    for name, (members, expected) in layouts.items():
        rows = [
            row for host, role, slo in members for row in member(host, role, ALL, slo=slo, **worker)
        ]
        (found,) = groups_of(rows)
        counts = {one.bound: (one.requests, one.requests_met) for one in found.slo}
        if counts != {bound: pytest.approx(two) for bound, two in expected.items()}:
            wrong.append((name, counts))
        for one in found.slo:
            costs = (one.cost_per_request_met, 48 / one.requests_met)
            if costs[0] != pytest.approx(costs[1]) or one.bound_ms != 500:
                wrong.append((name, one))
    assert wrong == []
    text = "\n".join(group_lines([found], answers_of([]).period))
    assert (
        "ttft_p90 500 ms: 87.50 % of 4,800 requests, objective 90 %; $0.0114 each within it" in text
    )
    assert " missed " in text
    (partly,) = groups_of(
        member("a", "all", ALL, slo=both, **worker), member("b", "all", ALL, **worker)
    )
    assert [one.cost_per_request_met for one in partly.slo] == [None, None]
    lacking = "b (all): no requests timed for ttft_p90: the group's is that of the others"
    assert lacking in partly.problems
    assert groups_of(member("a", "all", ALL, **worker))[0].slo == ()


COSTS = st.lists(st.floats(0.001, 1e6, allow_nan=False), min_size=4, max_size=4)


@given(costs=COSTS, split=st.floats(0, 1))
def test_parts_add_up_to_the_whole_to_the_last_digit(costs, split):
    roles = ("prefill", "decode", "worker", "all")
    members = zip(("a", "b", "c", "d"), roles, costs, strict=True)
    rows = [
        row
        for host, role, cost in members
        for row in member(host, role, range(2), cost=cost, counts=SERVED, split=split)
    ]
    reader = RowsReader(rows)
    period = fleet_period(START_S * NS_PER_S, (START_S + 7200) * NS_PER_S, END_S * NS_PER_S)
    (found,) = fleet_groups(FleetAnswers(reader, period, {}))
    assert found.priced_h == 2
    assert found.cost == total_of([one.cost for one in found.roles])
    assert found.cost == total_of([found.cost_tokens_in, found.cost_tokens_out])
    hours = fleet_spend(FleetAnswers(reader, period, {}), "host").parts
    assert float(found.cost) == pytest.approx(sum(one.costs[0].cost for one in hours))


def test_what_is_not_known_is_said_and_never_guessed():
    """A silent part, a clock that is ahead, two currencies, members that one label does not select."""
    seven = {"until_s": START_S + 14 * HOUR_S + 1200, "cost": 2.0}
    pools = [
        *member("p1", "prefill", ALL, counts=SERVED),
        *member("d1", "decode", ALL, counts=SERVED),
    ]
    (found,) = groups_of(pools, member("d2", "decode", ALL, **seven))
    assert (found.priced_h, found.cost) == (14, Decimal(14 * 4))
    # What the others cost and counted while it was silent does not count.
    assert found.cost_per_million_tokens_out == pytest.approx(3 / 0.1)
    silent = iso(seven["until_s"] * NS_PER_S)
    assert found.problems == (
        "priced over 14 of 24 hours: those in which all parts have a cost all the time",
        f"d2 (decode): a cost in 14 of 24 hours; silent since {silent}",
    )
    # Rows of the last 20 minutes do not make a whole hour.
    (short,) = groups_of(pools, member("d2", "decode", range(23, 24), until_s=END_S - 600))
    assert (short.priced_h, short.cost, short.cost_per_request) == (0, 0, None)
    assert short.problems == (
        "no unit cost: in no hour did all parts have a cost all the time",
        f"d2 (decode): a cost in 0 of 24 hours; newest row {iso((END_S - 600) * NS_PER_S)}",
    )
    (ahead,) = groups_of(pools, member("d2", "decode", ALL, ahead_s=2 * HOUR_S))
    assert ahead.priced_h == 22
    assert ahead.problems[1].startswith(
        f"d2 (decode): its newest row is of {iso((END_S + 7200) * NS_PER_S)}"
    )
    paid = groups_of(pools, member("d2", "decode", ALL, currency="EUR", counts=SERVED))
    assert [(one.currency, one.cost, one.cost_per_request) for one in paid] == [
        ("EUR", 24, None),
        ("USD", 48, None),
    ]
    assert paid[0].problems == (
        "no unit cost: members are paid in EUR and USD, which are never added",
    )
    here = {"labels": {"rack": "a"}}
    rows = [*member("p1", "prefill", ALL, counts=SERVED, **here), *member("d1", "decode", ALL)]
    (labelled,) = groups_of(rows, labels={"rack": "a"})
    assert "d1 (decode): left out, as a member without rack=a" in labelled.problems
    assert labelled.cost_per_million_tokens_in is None
    (dark,) = groups_of(pools, member("d2", "decode", ALL, energy_j=None))
    assert (dark.energy_j, dark.energy_per_million_tokens_in_j) == (None, None)
    unknown = ("the energy of d2 (decode) is not known all the time",)
    assert dark.problems == unknown
    often = [*member("d2", "decode", range(23)), *member("d2", "decode", (23,), energy_j=None)]
    (partly,) = groups_of(pools, often)
    assert (partly.priced_h, partly.energy_j, partly.problems) == (24, None, unknown)
    for role, other, prices in (
        ("decode", "prefill", (None, 10.0)),
        ("prefill", "decode", (1.0, None)),
    ):
        (alone,) = groups_of(member("a", role, ALL, counts=SERVED))
        found = (alone.cost_per_million_tokens_in, alone.cost_per_million_tokens_out)
        assert (found, alone.cost_per_request, len(alone.problems)) == (prices, None, 1)
        joules = (alone.energy_per_million_tokens_in_j, alone.energy_per_million_tokens_out_j)
        assert [one is None for one in joules] == [one is None for one in prices]
        assert alone.problems[0].startswith(f'no member with role = "{other}"')
    modelled = [*pools, *member("d2", "decode", ALL, counts=SERVED)]
    modelled += [
        replace(row, fields={**row.fields, "price_assumed": True})
        for row in modelled
        if row.measurement == "device" and row.tags["host"] == "d2"
    ]
    (guessed,) = groups_of(modelled)
    assert guessed.problems == (
        "d2 (decode): at an assumed price; write a [[price]] on these hosts",
    )
    # A replica that was started is priced from its first whole hour on; others need it not.
    late = member("b", "all", range(20, 24), counts=SERVED, split=0.5)
    (grown,) = groups_of(member("a", "all", ALL, counts=SERVED, split=0.5), late)
    assert (grown.priced_h, grown.cost, grown.requests) == (24, 28, pytest.approx(2800))
    assert grown.problems == ("b (all): a cost in 4 of 24 hours",)


def test_long_windows_have_a_price_only_if_whole(monkeypatch):
    """Two hours of one pool are not divided by the counts of one hour of the other."""
    decode = [*member("d1", "decode", ALL, counts=SERVED, cost=2.0)]
    for seconds, lacks, wanted in ((7200, (), 0.03), (7200, (10,), None), (3600, (10,), 0.03)):
        monkeypatch.setattr("fakes.fleet_groups.HOUR_S", seconds)
        monkeypatch.setattr("fakes.fleet_groups.WINDOW_S", seconds)
        cost, hours = seconds / HOUR_S, HOURS * HOUR_S // seconds
        prefill = [*member("p1", "prefill", range(hours), counts=SERVED, cost=cost)]
        there = [
            row for row in decode if (row.time_ns // NS_PER_S - START_S - 1) // 3600 not in lacks
        ]
        (found,) = groups_of(prefill, there)
        assert found.cost_per_request == (None if wanted is None else pytest.approx(wanted))
    assert found.priced_h == 23


def test_a_member_that_does_not_count_what_others_do_leaves_no_price_of_it():
    """Its cost would be divided among the tokens of the others."""
    requests = {"requests": 100.0}
    (found,) = groups_of(
        member("a", "all", ALL, counts=SERVED, split=0.4), member("b", "all", ALL, counts=requests)
    )
    assert found.cost_per_request == pytest.approx(0.01)
    prices = (found.cost_per_million_tokens_in, found.cost_per_million_tokens_out)
    assert (prices, found.tokens_out) == ((None, None), None)
    assert found.problems == (
        "b (all): no count of input tokens: the group has no price of these",
        "b (all): no count of output tokens: the group has no price of these",
    )
    (nobody,) = groups_of(member("a", "all", ALL, counts=requests))
    (idle,) = groups_of(member("a", "all", ALL, counts=dict.fromkeys(SERVED, 0.0)))
    assert nobody.problems == idle.problems == ()
    prefill = member("a", "prefill", ALL, counts=SERVED)
    (unread,) = groups_of(prefill, member("b", "decode", ALL))
    assert unread.problems == (
        "no requests and no output tokens: set url on one host of each engine",
    )


def test_changes_are_of_the_same_hours():
    """A day before the group cost half as much; only hours that are whole on both days count."""
    day = [row for shift in (24,) for row in disaggregated(range(-shift, -shift + 12))]
    twice = [row for host in ("p1", "d1") for row in member(host, "decode", ALL, counts=SERVED)]
    before = [*member("p1", "decode", range(-24, -12), counts=SERVED, cost=0.5)]
    before += member("d1", "decode", range(-24, -12), counts=SERVED, cost=0.5)
    (found,) = groups_of(twice, before)
    assert (found.change_24h_pct, found.change_7d_pct) == (pytest.approx(100), None)
    (same,) = groups_of(disaggregated(), day)
    assert same.change_24h_pct == pytest.approx(0)


def test_days_are_divided_only_where_a_member_lacks_hours_of_them():
    """Three days: a part without ten hours, a price that doubles, and a replica from the second noon on."""
    quiet, first = range(-30, -20), -96
    hours = [hour for hour in range(first, HOURS) if hour not in quiet]
    worker = {"counts": SERVED, "split": 0.5}
    decode = [
        row
        for hour in hours
        for row in member("d1", "decode", (hour,), cost=1 + (hour >= 0), counts=SERVED)
    ]
    rows = [
        *decode,
        *member("p1", "prefill", range(first, HOURS), counts=SERVED),
        *member("r1", "all", range(-12, HOURS), group="alone", cost=3.0, **worker),
        *member("r2", "all", range(first, HOURS), group="alone", **worker),
    ]
    alone, big = fleet_groups(answers_of(rows, hours=72))
    whole = [hour for hour in range(-48, HOURS) if hour in hours]
    assert (big.priced_h, big.period_h) == (62, 72)
    assert big.cost == sum(2 + (hour >= 0) for hour in whole)
    assert big.tokens_out == pytest.approx(62e5)
    assert big.problems[1:] == ("d1 (decode): a cost in 62 of 72 hours",)
    # The hours that were whole a day before, too.
    both = [hour for hour in whole if hour - 24 in hours]
    now, then = (sum(1 + (hour - ago >= 0) for hour in both) for ago in (0, 24))
    assert big.change_24h_pct == pytest.approx((now / then - 1) * 100)
    assert (alone.priced_h, alone.cost) == (72, 72 + 36 * 3)
    assert alone.problems == ("r1 (all): a cost in 36 of 72 hours",)


def test_many_hosts_are_not_listed_in_a_query():
    """VictoriaMetrics refuses a longer one; the groups among the answers are known all the same."""
    hosts = [f"gpu-node-{number:03}.eu-central.example.com" for number in range(200)]
    reader = RowsReader([row for host in hosts for row in member(host, "worker", (HOURS - 1,))])
    lengths = []

    class Listening:
        def ask(self, question, *period):
            lengths.append(len("|".join(question.hosts)))
            return reader.ask(question, *period)

    period = fleet_period(START_S * NS_PER_S, END_S * NS_PER_S, (END_S + 60) * NS_PER_S)
    (found,) = fleet_groups(FleetAnswers(Listening(), period, {}))
    assert (found.priced_h, found.cost, found.hosts) == (1, 200, 200)
    assert max(lengths) == 0


def test_parts_are_in_no_answer_about_models():
    """By model their group is listed; their tokens would count twice."""
    pools = [*disaggregated()]
    alone = [*member("x", "", ALL, group="", service="chat", counts=SERVED, split=0.5)]
    answers = answers_of([*pools, *alone])
    found = {one.model: one for one in fleet_unit_costs(answers, "model")}
    assert set(found) == {"big", "chat"}
    assert found["big"].cost_per_million_tokens_out == pytest.approx(16)
    assert found["chat"].cost_per_million_tokens_out == pytest.approx(5)
    assert [one.model for one in fleet_unit_costs(answers, "host")] == ["chat"]
    # A replica beside pools, of the same names: an hour of its model costs what the replica does.
    mixed = [*pools, *member("x", "all", ALL, cost=3.0, counts=SERVED, split=0.5)]
    (shown,) = unit_changes(answers_of(mixed, hours=1))
    assert (shown.now.model, shown.cost_per_h) == ("llm", pytest.approx(3))
    spend = fleet_spend(answers, "service_group")
    assert [(part.group, part.coverage) for part in spend.parts] == [(("big",), 1.0)]
    parts = [one for part in spend.parts for one in part.costs]
    assert sum(one.cost for one in [*parts, *spend.rest.costs]) == pytest.approx(384 + 24)
    assert parts[0].idle_share == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["influxql", "victoriametrics", "prometheus"])
def test_databases_answer_alike(section, tmp_path, kind):
    """Each kind of database about a whole group, and one whose second half is silent."""
    hours = range(-2, 3)
    until_s = START_S + 2 * HOUR_S + 600
    half = [*member("w1", "worker", hours, group="tp", cost=3.0, counts=SERVED, split=0.4)]
    half += member("w2", "worker", hours, group="tp", cost=2.0, until_s=until_s)
    slo = {"ttft_p90": (1200.0, 1080.0)}
    rows = [*disaggregated(hours, slo=slo), *half]
    scraped = fleet.scraped_of(rows) if kind == "prometheus" else ()
    lines = [fleet.render(row).encode() for row in rows]
    path = tmp_path / "costprobe.toml"
    path.write_text(section(kind, "groups", lines, scraped))
    period = ("--since", iso(START_S * NS_PER_S), "--until", iso((START_S + 10_800) * NS_PER_S))

    def asked(command):
        done = called(path, *of_fleet(command, "--by", "group"), *period, "--json")
        return checked(f"{command} --fleet", done.stdout)

    big, tp = asked("compare")["groups"]
    assert (big["priced_h"], big["period_h"], big["problems"]) == (3, 3, [])
    whole, of_input, of_output = (
        Decimal(big[f"cost{name}"]) for name in ("", "_tokens_in", "_tokens_out")
    )
    assert (float(whole), float(of_input)) == pytest.approx((48, 24))
    assert of_input + of_output == whole == sum(Decimal(role["cost"]) for role in big["roles"])
    assert (big["tokens_in"], big["tokens_out"]) == pytest.approx((12e6, 1.5e6))
    assert big["cost_per_million_tokens_out"] == pytest.approx(16)
    assert big["energy_per_million_tokens_out_j"] == pytest.approx(14.4e6)
    assert big["kv_transfer_bytes"] == pytest.approx(6e12)
    # That of both prefill servers.
    (level,) = big["slo"]
    assert (level["bound"], level["bound_ms"], level["objective_share"]) == ("ttft_p90", 500, 0.9)
    assert (level["requests"], level["requests_met"]) == pytest.approx((7200, 6480))
    assert (level["met_share"], level["cost_per_request_met"]) == pytest.approx((0.9, 48 / 6480))
    assert (tp["priced_h"], tp["hosts"], tp["devices"]) == (2, 2, 2)
    assert tp["cost_per_million_tokens_in"] == pytest.approx(0.4 * 5)
    assert tp["problems"][1].startswith("w2 (worker): a cost in 2 of 3 hours; newest row ")
    spend = asked("spend")
    costs = {part["group"][0]: part["costs"][0]["cost"] for part in spend["parts"]}
    assert costs == pytest.approx({"big": 48, "tp": 9 + 4 + 1 / 3})
    assert spend["rest"][0]["cost"] == pytest.approx(0, abs=1e-9)
