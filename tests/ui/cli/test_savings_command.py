"""`costprobe savings` on a store with five weeks of a small host."""

import json
import time
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
GIB = 1 << 30
MONTH = 3.6 * 730
CONFIG = """
[[price]]
plan = "on_demand"
device = "gpu0"
per_hour = 3.6
[[price]]
plan = "on_demand"
device = "cpu"
per_hour = 0.36
[[price]]
plan = "reserved"
name = "committed"
device = "gpu0"
per_hour = 3.6
discount = 0.4
term = "1y"
valid_from = 2099-01-01
[electricity]
tariff_per_kwh = 0.3
timezone = "UTC"
[[probe]]
name = "ranker"
kind = "cnn"
latency_bound = "50ms"
"""


def telemetry(now_ns, days):
    """Rows of 5 min each: idle on weekends, 20 % busy on working days."""
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "NVIDIA A100-SXM4-40GB"}
    for i in range(days * 288):
        at_ns = now_ns - i * 300 * 10**9
        works = datetime.fromtimestamp(at_ns // 10**9, UTC).weekday() < 5
        fields = {
            "util_pct": 20.0 if works else 0.0,
            "power_w": 200.0 if works else 50.0,
            "mem_used_bytes": 8 * GIB,
            "mem_total_bytes": 40 * GIB,
        }
        yield Point("device", tags, fields, at_ns)
    tags = {"device": "cpu", "kind": "cpu", "uuid": "cpu", "model": "EPYC"}
    yield Point("device", tags, {"util_pct": 5.0}, now_ns)


def probed(now_ns):
    for i in range(6):
        for name, ms in (("gpu0", 10.0), ("cpu", 40.0)):
            fields = {"latency_p50_ms": ms, "throughput_per_s": 8 / ms * 1000}
            tags = {"device": name, "probe": "ranker", "batch": "8"}
            yield Point("probe", tags, fields, now_ns - i * HOUR_NS)


def filled(folder, points):
    """Return the path of a store that is rolled up with the default retention."""
    path = folder / "costprobe.db"
    store = Store.open(path, FakeClock())
    store.append(points)
    now_ns = time.time_ns()
    ages = KeepSince(now_ns - 7 * DAY_NS, now_ns - 90 * DAY_NS, 0, 0)
    while not store.retain(ages, 10_000).is_done:
        pass
    store.close()
    return path


def command_on(path, folder, config=CONFIG):
    """Return a runner of the command on a store, with a configuration in the folder."""
    file = folder / "costprobe.toml"
    file.write_text(f'[store]\npath = "{path}"\n{config}')

    def run(*arguments, code=0):
        return called(file, "savings", "--since", "35d", *arguments, code=code).output

    return run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows end with the last full hour, so that no hour has partial coverage."""
    now_ns = time.time_ns() // HOUR_NS * HOUR_NS - 10**9
    return filled(tmp_path_factory.mktemp("past"), [*telemetry(now_ns, 35), *probed(now_ns)])


@pytest.fixture(scope="module")
def costprobe(store):
    return command_on(store, store.parent)


def supplies(text):
    (answer,) = json.loads(text)
    return {one["action"]: float(one["saving_per_month"]) for one in answer["supplies"]}


def test_supplies_of_a_host_from_its_store(costprobe):
    found = supplies(costprobe("--json"))
    # 20 % of the GPU at a quarter of its speed is 0.8 of a CPU, with 20 % free one.
    assert found["cpu, batch 8; on demand"] == pytest.approx(MONTH * 0.9)
    assert found["gpu0; committed"] == pytest.approx(MONTH * 0.4)
    (weekend,) = [action for action in found if action.startswith("gpu0; off ")]
    assert weekend == "gpu0; off sat 00:00 to sun 24:00; on demand"
    assert found[weekend] == pytest.approx(MONTH * 2 / 7, rel=0.05)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_prices_on_offer(costprobe, tmp_path):
    plans = tmp_path / "plans.toml"
    prices = tmp_path / "spot.csv"
    prices.write_text("time,price\n2026-01-01T00:00:00Z,0.9\n")
    plans.write_text(
        '[[price]]\nplan = "reserved"\nname = "three-years"\ndevice = "gpu0"\nper_hour = 3.6\n'
        'effective_per_hour = 0.6\nterm = "3y"\n'
        f'[[price]]\nplan = "spot"\nname = "market"\ndevice = "gpu0"\nfile = "{prices}"\n'
        '[[price]]\nplan = "owned"\ndevice = "gpu0"\npurchase_price = 8760\nlifetime = "1y"\n'
        "electricity_included = true\n"
    )
    found = supplies(costprobe("--plans", str(plans), "--reserved", "1y=35%", "--json"))
    assert found["gpu0; three-years"] == pytest.approx(3.0 * 730)
    assert found["gpu0; market"] == pytest.approx(2.7 * 730)
    assert found["gpu0; owned"] == pytest.approx(2.6 * 730)
    assert found["gpu0; reserved-1y-35"] == pytest.approx(0.35 * MONTH)
    for text, words in (
        ('[[price]]\nplan = "leased"\n', "price[0]"),
        ("[[price", "not valid TOML"),
    ):
        plans.write_text(text)
        refused = costprobe("--plans", str(plans), code=2)
        assert str(plans) in refused
        assert words in refused


def test_insufficient_data_is_asked_for(costprobe):
    assert "needed: a week of utilization; " in costprobe("--since", "3d")


def served(now_ns, days):
    """Rows of a service each 5 min: 300 requests in the first ten minutes of an hour."""
    tags = {"service": "chat", "engine": "vllm"}
    for i in range(days * 288):
        end_ns = now_ns - i * 300 * 10**9
        is_busy = (end_ns - 150 * 10**9) % HOUR_NS < HOUR_NS // 6
        count = 150.0 if is_busy else 0.0
        fields = {"requests": count, "tokens_out": 10 * count, "window_s": 300.0, "complete": True}
        yield Point("serving", tags, fields, end_ns)
        tokens = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "A100"}
        util = {"util_pct": 30.0 if is_busy else 0.0, "power_w": 100.0}
        yield Point("device", tokens, util, end_ns)


def test_a_service_between_whose_requests_the_device_is_released(tmp_path):
    now_ns = time.time_ns() // HOUR_NS * HOUR_NS
    config = (
        '[telemetry]\nevery = "30s"\n'
        '[[price]]\nplan = "on_demand"\nper = "device"\nper_hour = 3.6\n'
        '[[service]]\nname = "chat"\nurl = "http://127.0.0.1:9"\nengine = "vllm"\n'
        'devices = ["gpu0"]\n'
    )
    rows = list(served(now_ns, 28))
    need = "set cold_start of chat in [[service]]"
    store = filled(tmp_path, rows)
    assert need in command_on(store, tmp_path, config)()
    run = command_on(store, tmp_path, config + 'cold_start = "45s"\n')
    lines = run().splitlines()
    # 10 min, the time-out of 45 s and the start of 45 s are paid: 11.5 of 60 min. Of 30 requests in
    # the first minute one waits for 45 s, and 29 x 45 / 60 that follow for 22.5 s.
    assert "  1. gpu0; scale to zero, released after 45 s; on demand: $504" in "\n".join(lines)
    (load,) = [line for line in lines if "load:" in line]
    assert "3,000 output tokens an hour, 5 a second in the highest 5 min" in load
    text = (
        "730 starts a month, 7.58 % of the requests wait for one, 1.78 s on average, at most 45 s"
    )
    assert text in "\n".join(lines)
    (answer,) = json.loads(run("--json"))
    (supply,) = answer["supplies"]
    assert float(supply["cost_per_month"]) == pytest.approx(MONTH * 11.5 / 60, rel=0.01)
    assert (answer["load_unit"], answer["devices_min"]) == ("tokens_out", 1)
    assert supply["scaling"]["cold_start_s"] == 45.0
