"""`costprobe advise` on a store with five weeks of a small host."""

import json
import re
import time
from datetime import UTC, datetime

import pytest
from costprobe.adapters.storage.rollup.rollup import KeepSince
from costprobe.adapters.storage.writer import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
GIB = 1 << 30
CONFIG = """
[[price]]
plan = "on_demand"
device = "gpu0"
per_hour = 3.6
[[price]]
plan = "on_demand"
device = "cpu"
per_hour = 0.036
[[price]]
plan = "reserved"
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
    """Rows of 90 s each: idle on weekends, 20 % busy on working days."""
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "NVIDIA A100-SXM4-40GB"}
    for i in range(days * 960):
        at_ns = now_ns - i * 90 * 10**9
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
    tags = {"device": "gpu0", "probe": "ranker", "currency": "USD"}
    for batch, ms in ((8, 10.0), (16, 16.0), (64, 80.0)):
        fields = {"latency_p50_ms": ms, "throughput_per_s": batch / ms * 1000}
        yield Point("sweep", {**tags, "batch": str(batch)}, fields, now_ns)


def command_on(folder, points):
    """Return a runner of the command on a store rolled up with the default retention."""
    config = folder / "costprobe.toml"
    config.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{CONFIG}')
    store = Store.open(folder / "costprobe.db", FakeClock())
    store.append(points)
    now_ns = time.time_ns()
    ages = KeepSince(now_ns - 7 * DAY_NS, now_ns - 30 * DAY_NS, 0, 0)
    while not store.retain(ages, 10_000).is_done:
        pass
    store.close()

    def run(*arguments, code=0):
        return called(config, "advise", *arguments, code=code).output

    return run


@pytest.fixture(scope="module")
def costprobe(tmp_path_factory):
    """Rows end with the last full hour, so that no hour has partial coverage."""
    now_ns = time.time_ns() // HOUR_NS * HOUR_NS - 10**9
    points = [*telemetry(now_ns, 35), *probed(now_ns)]
    return command_on(tmp_path_factory.mktemp("past"), points)


def test_every_kind_of_hint_on_stored_history(costprobe):
    found = json.loads(costprobe("--since", "35d", "--json"))
    hints = {hint["kind"]: hint for hint in found["hints"]}
    savings = {kind: float(hint["saving_per_month"]) for kind, hint in hints.items()}
    month = 3.6 * 730
    # 20 % busy on five of seven days.
    busy = month * 0.2 * 5 / 7
    # An inference takes 1/1000 s instead of 1/800 s.
    assert savings["batch"] == pytest.approx(0.2 * busy, rel=0.01)
    assert hints["batch"]["action"] == "batch 16 instead of 8"
    assert "a sweep" in hints["batch"]["had"]
    assert savings["idle_hours"] == pytest.approx(month * 2 / 7, rel=0.05)
    assert "48 hours of the week: sat 00:00 to sun 24:00" in hints["idle_hours"]["action"]
    assert savings["mig_slice"] == pytest.approx(month * 5 / 7, rel=0.01)
    assert savings["reserved"] == pytest.approx(month * 0.4, rel=0.01)
    # A quarter of the pace at a hundredth of the price: 96 % less.
    assert savings["cpu"] == pytest.approx(0.96 * busy, rel=0.01)
    order = [float(hint["saving_per_month"]) for hint in found["hints"]]
    assert order == sorted(order, reverse=True)
    (sum_of,) = found["together"]
    kinds = [found["hints"][index]["kind"] for index in sum_of["hints"]]
    assert kinds == ["mig_slice"]
    assert len(found["hints"][0]["excludes"]) == 4


def test_text_output_has_the_same_figures(costprobe):
    text = costprobe("--since", "35d")
    assert "1. gpu0: a MIG instance of 2 slices instead of 7, saves " in text
    assert "     not with 2: the slice's saving assumes the hourly price" in text
    assert re.search(r"^together \$[\d,.]+ a month: 1$", text, re.MULTILINE)
    assert re.search(r"an hour off saves \$[\d.]+ \(", text)
    assert "  cpu, a reservation: no comparable reservation is on offer (had: 0.0 days" in text


def test_plans_from_a_file_are_offered(costprobe, tmp_path):
    file = tmp_path / "plans.toml"
    file.write_text(
        '[[price]]\nplan = "reserved"\ndevice = "gpu0"\nper_hour = 3.6\neffective_per_hour = 0.6\n'
        'term = "3y"\nvalid_from = 2024-01-01\n'
    )
    found = json.loads(costprobe("--since", "35d", "--plans", str(file), "--json"))
    (hint,) = [hint for hint in found["hints"] if hint["kind"] == "reserved"]
    assert float(hint["saving_per_month"]) == pytest.approx(3.0 * 730, rel=0.01)
    assert hint["action"] == "reserved of 2024-01-01 instead of on demand"


def test_insufficient_data_is_reported_with_its_amount(costprobe, tmp_path):
    found = json.loads(costprobe("--since", "3d", "--json"))
    assert found["hints"] == found["together"] == []
    needs = {(one["kind"], one["subject"]): one for one in found["no_hints"]}
    idle = needs["idle_hours", "gpu0"]
    assert idle["needed"] == "14.0 days of utilization"
    assert 2.5 < float(idle["had"].split()[0]) < 3.1
    assert needs["reserved", "gpu0"]["needed"] == "14.0 days of telemetry"
    assert "no suggestion\nnot enough data\n" in costprobe("--since", "3d")
    nothing = command_on(tmp_path, [])
    assert "no device row since" in nothing(code=1)
