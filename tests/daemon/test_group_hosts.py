"""Services over several hosts, with real daemons, drivers, metrics pages and databases between them.

The pages are of a disaggregated vLLM (prefill on `p0`, decode on `d0`) and of an engine over two hosts (`e0` with the
counters, `e1` without). In the first hour `e1` is not there yet, in the second `d0` is silent.
"""

import json
import math
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes.command import called, of_fleet
from fakes.disaggregated import KV_BYTES, DisaggregatedVllm
from fakes.served_hosts import DATABASE, ServedHost, sections, stopped
from fakes.servers import InfluxDB, VictoriaMetrics, running
from fakes.serving_engine import ServingEngine

HOUR_S = 3600
# Windows begin ten minutes after each hour.
START_S = (int(time.time()) // HOUR_S - 3) * HOUR_S
POWER_W = 300.0
# Host: group, role, price of a GPU and hour, GPUs, utilization.
HOSTS = {
    "p0": ("llama-70b", "prefill", 7.2, 2, 60),
    "d0": ("llama-70b", "decode", 3.6, 1, 25),
    "e0": ("mixtral", "worker", 10.8, 1, 50),
    "e1": ("mixtral", "worker", 14.4, 1, 50),
}
HOURS = (("p0", "d0", "e0"), ("p0", "e0", "e1"))
# Requests, and prompt and generated tokens of each.
LLAMA, MIXTRAL = (200, 1500, 300), (100, 1000, 100)


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    """An InfluxDB and a VictoriaMetrics."""
    folders = [tmp_path_factory.mktemp(name) for name in ("influxdb", "victoria")]
    with (
        running(InfluxDB, folders[0], "influxd") as influxdb,
        running(VictoriaMetrics, folders[1], "victoria-metrics") as victoria,
    ):
        influxdb.query(f'CREATE DATABASE "{DATABASE}"')
        yield influxdb, victoria


@pytest.fixture(scope="module")
def scene(databases, tmp_path_factory):
    """Both hours: the hosts by name, and the databases, which have all of their rows."""
    folder = tmp_path_factory.mktemp("hosts")
    vllm, engine = DisaggregatedVllm(), ServingEngine()
    pages = {"p0": vllm.prefill, "d0": vllm.decode, "e0": engine}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(page.over_http()).url for name, page in pages.items()}
        hosts = {
            name: ServedHost(folder / name, name, per_hour, gpus)
            for name, (_, _, per_hour, gpus, _) in HOSTS.items()
        }
        stack.enter_context(stopped(*hosts.values()))
        for name, (group, role, _, _, util_pct) in HOSTS.items():
            hosts[name].set_load(util_pct, POWER_W)
            url = {"url": urls[name]} if name in urls else {}
            keys = {"name": f"{group}-part", "engine": "vllm", "group": group, "role": role}
            hosts[name].configure(databases, **url, **keys)
        vllm.serve(1, tokens_in=10, tokens_out=10)
        engine.serve(tokens_in=10, tokens_out=10)
        for hour, names in enumerate(HOURS):
            run_hour(hour, [hosts[name] for name in names], vllm, engine)
    return SimpleNamespace(hosts=hosts, databases=databases)


def run_hour(hour, hosts, vllm, engine):
    """Run daemons in an hour until each has counted and allocated what was served in it."""
    for host in hosts:
        host.wall.set((START_S + hour * HOUR_S + 600) * NS_PER_S)
        host.spawn()
    counted = [len(host.points("serving")) for host in hosts]
    for host, before in zip(hosts, counted, strict=True):
        host.wait_for(lambda host=host, before=before: len(host.points("serving")) > before)
    for server, (requests, tokens_in, tokens_out) in ((vllm, LLAMA), (engine, MIXTRAL)):
        server.serve(requests=requests, tokens_in=tokens_in, tokens_out=tokens_out)
    counted = [len(host.windows()) for host in hosts]
    for host, before in zip(hosts, counted, strict=True):
        host.wait_for(lambda host=host, before=before: len(host.windows()) > before + 1)
    for host in hosts:
        host.end()


def rows(scene, measurement, name, hour=None):
    """The rows of a host's service in an hour, in the order of their times."""
    tags = {"basis": "serving"} if measurement == "cost" else {}
    found = scene.hosts[name].points(measurement, **tags)
    start_s = START_S + (hour or 0) * HOUR_S
    return [row for row in found if hour is None or 0 <= row.time_ns // NS_PER_S - start_s < HOUR_S]


def total(found, field):
    return math.fsum(row.fields.get(field, 0.0) for row in found)


def test_each_host_has_its_cost_and_each_page_its_counts(scene):
    """The second sources of the same figures: prices by hand, and what the servers served."""
    for name, (group, role, per_hour, gpus, util_pct) in HOSTS.items():
        costs = rows(scene, "cost", name)
        own = {"service_group": group, "service_role": role, "host": name, "currency": "EUR"}
        assert own.items() <= costs[0].tags.items()
        for row in costs:
            paid = per_hour * gpus * row.fields["window_s"] / HOUR_S
            # A device is charged from its first to its last sample, which may be in a window.
            assert 0 < row.fields["cost_total"] <= paid * (1 + 1e-9)
            assert not {"requests", "tokens_in", "tokens_out"} & row.fields.keys()
        # In the first moments of a daemon the utilization may be unknown.
        idle = {row.fields["idle_share"] for row in costs if "idle_share" in row.fields}
        assert sorted(idle) == pytest.approx([1 - util_pct / 100] * len(idle))
        assert idle
    requests, tokens_in, tokens_out = LLAMA
    prefill, decode = (rows(scene, "serving", name, hour=0) for name in ("p0", "d0"))
    for found, generated in ((prefill, requests), (decode, requests * tokens_out)):
        assert total(found, "tokens_in") == requests * tokens_in
        assert total(found, "tokens_out") == generated
    moved = requests * (tokens_in - 1) * KV_BYTES
    assert (total(prefill, "kv_transfer_bytes"), total(decode, "kv_transfer_bytes")) == (0, moved)
    for hour in (0, 1):
        assert total(rows(scene, "serving", "e0", hour), "tokens_out") == MIXTRAL[0] * MIXTRAL[2]
    assert total(rows(scene, "serving", "e1"), "tokens_out") == 0


def test_both_databases_have_each_row_of_each_host_once(scene):
    influxdb, victoria = scene.databases
    stored = {
        (row.tags["host"], row.time_ns): row.fields["cost_total"]
        for name in HOSTS
        for row in rows(scene, "cost", name)
    }
    assert len(stored) >= 2 * sum(map(len, HOURS))
    found = {
        (dict(tags)["host"], time_ns): fields["cost_total"]
        for (measurement, tags, time_ns), fields in influxdb.points(DATABASE).items()
        if measurement == "cost"
    }
    assert found == stored
    samples = {
        (dict(tags)["host"], time_ms): value
        for (name, tags, time_ms), value in victoria.samples().items()
        if name == "cost_cost_total"
    }
    assert samples == {
        (host, time_ns // 10**6): pytest.approx(cost) for (host, time_ns), cost in stored.items()
    }


def test_both_databases_have_the_spend_of_each_group_and_no_price_of_a_few_seconds(scene, tmp_path):
    period = [iso((START_S + hour * HOUR_S) * NS_PER_S) for hour in (0, 2)]
    spent = {}
    for name, (group, *_) in HOSTS.items():
        spent.setdefault(group, []).extend(rows(scene, "allocation", name))
    for kind, section in sections(scene.databases).items():
        path = tmp_path / f"{kind}.toml"
        path.write_text(section)

        def ask(command, path=path):
            words = of_fleet(command, "--by", "group", "--since", period[0], "--until", period[1])
            return json.loads(called(path, *words, "--json").stdout)

        costs = {part["group"][0]: part["costs"][0]["cost"] for part in ask("spend")["parts"]}
        assert costs == {
            group: pytest.approx(total(found, "cost")) for group, found in spent.items()
        }
        groups = {one["group"]: one for one in ask("compare")["groups"]}
        for group, silent in (("llama-70b", "d0 (decode)"), ("mixtral", None)):
            found = groups[group]
            assert (found["priced_h"], found["cost_per_million_tokens_out"]) == (0, None)
            why, *rest = found["problems"]
            assert why == "no unit cost: in no hour did all parts have a cost all the time"
            named = [one.partition(":")[0] for one in rest if "; silent since" in one]
            assert named == ([silent] if silent else [])
