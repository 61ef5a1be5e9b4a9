"""`costprobe price what-if` on a host with a GPU and a CPU that ran the same probe."""

import json
import time

import pytest
from costprobe.adapters.storage.writer import Store
from costprobe.core.records import Point
from fakes.cases import check_all
from fakes.clock import FakeClock
from fakes.command import called
from fakes.nvml import FakeNvml

HOUR_NS = 3600 * 10**9
CONFIG = """
[telemetry]
cpu = true

[[price]]
plan = "on_demand"
per_hour = 3.60
host_overhead = 0.25

[[price]]
plan = "owned"
valid_from = 2020-01-01
purchase_price = 8760
lifetime = "1y"

[electricity]
tariff_per_kwh = 0.36
"""


def rows(now_ns):
    """Return rows of a GPU (batch 8 at 100 W, batch 4 once), a CPU, and a sweep of two batches."""
    found = []

    def add(measurement, device, batch, hours_ago, *, throughput, energy_j, latency_ms):
        tags = {"device": device, "probe": "ranker", "batch": batch}
        fields = {
            "throughput_per_s": throughput,
            "energy_per_inference_j": energy_j,
            "latency_p50_ms": latency_ms,
            "fingerprint": "cpu" if device == "cpu" else "aa",
        }
        found.append(Point(measurement, tags, fields, now_ns - hours_ago * HOUR_NS))

    as_ever = {"throughput": 100.0, "energy_j": 1.0, "latency_ms": 20.0}
    add("probe", "gpu0", "4", 9, throughput=50.0, energy_j=2.0, latency_ms=20.0)
    for hours_ago in (8, 7, 6):
        add("probe", "gpu0", "8", hours_ago, **as_ever)
        add("probe", "cpu", "1", hours_ago, throughput=10.0, energy_j=5.0, latency_ms=100.0)
    add("sweep", "gpu0", "8", 5, **as_ever)
    add("sweep", "gpu0", "32", 5, throughput=200.0, energy_j=0.6, latency_ms=60.0)
    return found


@pytest.fixture
def costprobe(tmp_path):
    fake = FakeNvml(tmp_path, gpus=1)
    config = tmp_path / "costprobe.toml"
    config.write_text(f'{CONFIG}\n[store]\npath = "{tmp_path}/costprobe.db"\n')
    with_store = Store.open(tmp_path / "costprobe.db", FakeClock())
    with_store.append(rows(time.time_ns()))
    with_store.close()

    def run(*arguments, code=0):
        return called(config, "price", *arguments, code=code, env=fake.env()).output

    return run


def entries(text, device="gpu0"):
    (entry,) = [entry for entry in json.loads(text) if entry["device"] == device]
    return {plan["name"]: plan for plan in entry["plans"]}


def test_other_batches_and_the_cpu_are_listed_with_the_plans(costprobe):
    found = entries(costprobe("what-if", "--json"))
    # The owned machine costs 1 an hour and its electricity 0.36 a kWh: 1e-7 a joule.
    assert found["actual"]["cost_per_inference"] == pytest.approx(1 / 3600 / 100 + 1e-7)
    assert found["batch 4"]["cost_per_inference"] == pytest.approx(1 / 3600 / 50 + 2e-7)
    assert found["batch 32"]["cost_per_inference"] == pytest.approx(1 / 3600 / 200 + 0.6e-7)
    assert found["batch 32"]["latency_p50_ms"] == 60
    assert "batch 8" not in found
    # The plans cover accelerators only, so the CPU keeps its list price.
    on_cpu = found["on cpu, list price (assumed)"]
    assert (on_cpu["plan"], on_cpu["latency_p50_ms"]) == ("assumed", 100)
    assert on_cpu["cost_per_inference"] == pytest.approx(
        float(on_cpu["price_rate_per_h"]) / 3600 / 10
    )


def test_table_and_bars_show_the_entries(costprobe):
    text = costprobe("what-if", "--probe", "ranker").split("\n\n")[0]
    row, bar = [line for line in text.splitlines() if line.startswith("batch 32")]
    assert "60.000" in row
    assert bar.split()[-1].strip("#") == ""
    assert "-49.7 %" in row


def test_break_even_utilization_includes_electricity(costprobe):
    found = entries(costprobe("what-if", "--json", "--reserved", "1y=35%", "--reserved", "3y=0.6"))
    # 1 against 3.60 an hour in use, where 100 W cost 0.036 an hour either way.
    assert found["owned of 2020-01-01"]["break_even_share"] == pytest.approx(1 / (3.60 - 0.036))
    assert found["reserved 1y at 35 % off"]["price_rate_per_h"] == "2.3400"
    assert found["reserved 1y at 35 % off"]["break_even_share"] == pytest.approx(0.65)
    assert found["reserved 3y at 60 % off"]["break_even_share"] == pytest.approx(0.4)


def test_invalid_reservations_are_rejected(costprobe):
    def check(text, words):
        assert words in costprobe("what-if", "--reserved", text, code=2)

    check_all(
        check,
        [("1y", "write TERM=DISCOUNT"), ("1y=x", "write TERM=DISCOUNT"), ("1y=150%", "discount")],
    )


def test_another_currency_is_never_compared(costprobe, tmp_path):
    plans = tmp_path / "plans.toml"
    plans.write_text(
        '[[price]]\nplan = "reserved"\nper_hour = 2\ndiscount = 0.5\nterm = "1y"\n'
        'valid_from = 2026-01-01\ncurrency = "EUR"\n'
    )
    found = entries(costprobe("what-if", "--json", "--plans", str(plans)))
    euros = found["reserved of 2026-01-01"]
    assert (euros["currency"], euros["break_even_share"]) == ("EUR", None)
    text = costprobe("what-if", "--plans", str(plans)).split("\n\n")[0]
    (row,) = [line for line in text.splitlines() if line.startswith("reserved")]
    assert row.split()[-2:] == ["-", "-"]


def test_show_lists_the_origin_of_each_component_and_the_host_overhead(costprobe):
    old = json.loads(costprobe("show", "--json", "--at", "2019-01-01"))["devices"]
    gpu = next(entry for entry in old if entry["device"] == "gpu0")
    assert gpu["parts"] == {"rent": "2.7000", "host overhead": "0.9000"}
    assert gpu["origins"]["host overhead"] == "host_overhead = 0.25 of each part"
    text = costprobe("show")
    assert "depreciation: $1/h ((8760 - 0) / 8760 h)" in text
    # All host overhead is allocated to the accelerator, with a note.
    assert "host overhead: $0/h (host_overhead = 0 of each part)" in text
    assert "electricity not included: $0.36/kWh" in text
