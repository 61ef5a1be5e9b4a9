"""What groups of services cost, against prices by hand and the device time of a simulated server.

Each host is the daemon's code of services on a manual clock, which reads real pages of metrics; its rows go into a real
database. A disaggregated server prefills on two GPUs of `p0` and decodes on two of `d0`; an engine spans `e0`, which counts,
and and `e1`. In the third hour `d0` is silent; `e1` comes after the first.
"""

from collections import Counter
from contextlib import ExitStack, closing
from decimal import Decimal
from types import SimpleNamespace

import pytest
from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.databases.question import FleetConfig
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S, Device
from costprobe.fleet.answers import FleetAnswers, FleetPeriod
from costprobe.fleet.groups import fleet_groups
from fakes import pools
from fakes.clock import FakeClock
from fakes.disaggregated import KV_BYTES, Instance
from fakes.services import service_table
from fakes.serving_bench import ServingBench
from fakes.serving_engine import ServingEngine

START_S = 1_780_002_000
HOUR_S, WINDOW_S, HOURS = 3600, 300, 3
PER_S = 0.3
IDLE_W, BUSY_W = 100.0, 500.0
# Of a GPU and hour, electricity included.
PER_HOUR = {"p0": "7.20", "d0": "3.60", "e0": "1.10", "e1": "1.30"}
GPUS = {"p0": 2, "d0": 2, "e0": 1, "e1": 1}
ENGINE = {"requests": 10, "tokens_in": 1000, "tokens_out": 100}
ENGINE_UTIL_PCT = 30.0
SLO = 'slo = { ttft_p90 = "500ms", latency_p90 = "5s" }\n'
# Of the requests of each window, the share of first tokens within 500 ms, and of answers within 5 s.
MET = {"p0": 0.75, "d0": 0.5}
PRICE = '[[price]]\nplan = "on_demand"\nper = "device"\ncurrency = "EUR"\nper_hour = {}\n'


def table(name, role, group, url=None):
    """The section of a service on all GPUs of a host."""
    devices = [f"gpu{number}" for number in range(GPUS[name])]
    text = service_table(f"{group}-part", url or "", *devices, group=group, role=role)
    if name in MET:
        text += SLO
    return text if url else text.replace('url = ""\n', "")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """The rows of all hosts, and the simulated pools."""
    reading, writing = Instance(is_decoding=False), Instance(is_decoding=True)
    engine = ServingEngine()
    prefill, decode = pools.served((2, 2), per_s=PER_S, until_s=HOURS * HOUR_S, window_s=WINDOW_S)
    with ExitStack() as stack:
        pages = (reading, writing, engine)
        urls = [stack.enter_context(page.over_http()).url for page in pages]
        tables = {
            "p0": table("p0", "prefill", "llama", urls[0]),
            "d0": table("d0", "decode", "llama", urls[1]),
            "e0": table("e0", "worker", "mixtral", urls[2]),
            "e1": table("e1", "worker", "mixtral"),
        }
        hosts = {}
        for name, text in tables.items():
            starts_s = START_S + HOUR_S * (name == "e1")
            hosts[name] = ServingBench(
                tmp_path_factory.mktemp(name),
                text,
                price=PRICE.format(PER_HOUR[name]),
                host=name,
                devices=[
                    Device(f"gpu{n}", "gpu", f"{name}-{n}", "H100") for n in range(GPUS[name])
                ],
                clock=FakeClock(starts_s * NS_PER_S),
            )
        for window in range(HOURS * HOUR_S // WINDOW_S):
            hour = window * WINDOW_S // HOUR_S
            away = {0: {"e1"}, 2: {"d0"}}.get(hour, set())
            for name, page, pool in (("p0", reading, prefill), ("d0", writing, decode)):
                page.counters.setdefault("m", Counter()).update(pool.counts[window])
                page.times = ("ttft", "latency")
                requests = pool.counts[window]["requests"]
                for figure in page.times:
                    page.observe(figure, 0.3, MET[name] * requests)
                    page.observe(figure, 7.0, (1 - MET[name]) * requests)
                share = pool.busy_s[window] / pool.devices / WINDOW_S
                hosts[name].util_pct = 100 * share
                hosts[name].power_w = IDLE_W + BUSY_W * share
            engine.counters.setdefault("m", Counter()).update(ENGINE)
            for name in sorted(hosts.keys() - away):
                if name[0] == "e":
                    hosts[name].util_pct = ENGINE_UTIL_PCT
                hosts[name].move(WINDOW_S)
                hosts[name].close()
        rows = [
            row
            for host in hosts.values()
            for measurement in ("cost", "serving", "slo", "allocation")
            for row in host.rows(measurement)
        ]
        for host in hosts.values():
            host.store.close()
    return SimpleNamespace(rows=rows, prefill=prefill, decode=decode)


@pytest.fixture(params=["influxql", "victoriametrics"])
def groups(request, section, scene):
    """Asks a database for the groups of some hours, by name."""
    lines = [render(row).encode() for row in scene.rows]
    text = section(request.param, request.node.originalname, lines)
    keys = dict(line.split(" = ") for line in text.splitlines()[1:])
    config = FleetConfig.model_validate({name: value.strip('"') for name, value in keys.items()})

    def ask(first, last):
        start_ns, end_ns = ((START_S + hour * HOUR_S) * NS_PER_S for hour in (first, last))
        now_ns = (START_S + HOURS * HOUR_S) * NS_PER_S
        period = FleetPeriod(start_ns, end_ns, WINDOW_S, now_ns)
        with closing(fleet_reader(config, FakeClock(now_ns))) as reader:
            return {one.group: one for one in fleet_groups(FleetAnswers(reader, period, {}))}

    return ask


def exact(number):
    rel = Decimal("1e-12")
    return pytest.approx(number, rel=rel if isinstance(number, Decimal) else float(rel))


def of_hours(pool, hours):
    """Counts and device seconds of a pool in the first hours."""
    windows = range(hours * HOUR_S // WINDOW_S)
    counts = sum((pool.counts[window] for window in windows), Counter())
    return counts, sum(pool.busy_s[window] for window in windows)


def test_group_has_the_price_of_each_pool_by_its_device_time(groups, scene):
    hours = 2
    (read, prefill_s), (written, decode_s) = (
        of_hours(pool, hours) for pool in (scene.prefill, scene.decode)
    )
    found = groups(0, hours)["llama"]
    assert (found.priced_h, found.problems) == (hours, ())
    # By hand: two GPUs at 7.20 an hour and two at 3.60, for two hours.
    assert (found.cost, found.cost_tokens_in, found.cost_tokens_out) == (
        exact(Decimal("43.2")),
        exact(Decimal("28.8")),
        exact(Decimal("14.4")),
    )
    assert found.cost == found.cost_tokens_in + found.cost_tokens_out
    assert found.cost == sum(one.cost for one in found.roles)
    assert (found.requests, found.tokens_in, found.tokens_out) == exact(
        (written["requests"], read["tokens_in"], written["tokens_out"])
    )
    assert found.cost_per_million_tokens_in == exact(28.8e6 / read["tokens_in"])
    assert found.cost_per_million_tokens_out == exact(14.4e6 / written["tokens_out"])
    # What the devices did not compute was idle.
    pool_s = 2 * hours * HOUR_S
    idle = {one.role: one.idle_share for one in found.roles}
    assert idle == {
        "prefill": pytest.approx(1 - prefill_s / pool_s),
        "decode": pytest.approx(1 - decode_s / pool_s),
    }
    whole = (2 * (1 - prefill_s / pool_s) + (1 - decode_s / pool_s)) / 3
    assert found.idle_share == pytest.approx(whole)
    joules = [IDLE_W * pool_s + 2 * BUSY_W * busy_s / 2 for busy_s in (prefill_s, decode_s)]
    assert found.energy_j == pytest.approx(sum(joules))
    assert found.energy_per_million_tokens_in_j == pytest.approx(
        1e6 * joules[0] / read["tokens_in"]
    )
    assert found.energy_per_million_tokens_out_j == pytest.approx(
        1e6 * joules[1] / written["tokens_out"]
    )
    levels = {one.bound: one for one in found.slo}
    for bound, (name, counts) in {
        "ttft_p90": ("p0", read),
        "latency_p90": ("d0", written),
    }.items():
        assert levels[bound].requests == exact(counts["requests"])
        assert levels[bound].requests_met == exact(MET[name] * counts["requests"])
    cost = levels["ttft_p90"].cost_per_request_met
    assert cost == exact(43.2 / (0.75 * read["requests"]))
    moved = (written["tokens_in"] - written["requests"]) * KV_BYTES
    assert found.kv_transfer_bytes == exact(moved)


def test_hours_in_which_a_part_is_silent_or_not_there_yet_have_no_price(groups):
    """Else the tokens of `e0` would cost less than half, and those of `p0` would be all."""
    found, whole = groups(0, 3), groups(0, 2)
    llama, mixtral = found["llama"], found["mixtral"]
    assert (llama.priced_h, llama.cost) == (2, exact(whole["llama"].cost))
    assert llama.cost_per_million_tokens_out == exact(whole["llama"].cost_per_million_tokens_out)
    assert [one for one in llama.problems if one.startswith("d0 (decode): a cost in 2 of 3 hours")]
    # Ten requests in each of twelve windows an hour, on GPUs at 1.10 and 1.30.
    assert (mixtral.priced_h, mixtral.cost) == (2, exact(Decimal("4.8")))
    assert mixtral.cost == mixtral.cost_tokens_in + mixtral.cost_tokens_out
    assert mixtral.cost_per_request == exact(2.4 / 120)
    assert [one for one in mixtral.problems if one.startswith("e1 (worker): a cost in 2 of 3")]
    # `d0` has no row in this hour, and had in the one before.
    (silent, other) = (groups(2, 3)[name] for name in ("llama", "mixtral"))
    assert (silent.cost_per_million_tokens_in, silent.cost_per_request) == (None, None)
    assert (silent.cost, silent.hosts) == (0, 1)
    assert [one for one in silent.problems if one.startswith("d0 (decode): a cost in 0 of 1 hour")]
    assert (other.priced_h, other.problems) == (1, ())
