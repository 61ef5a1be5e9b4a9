"""`costprobe advise` on a host with services, MIG devices and a removed device."""

import json
import time
from datetime import UTC, datetime

import pytest
from costprobe.adapters.storage.writer import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

HOUR_NS = 3600 * 10**9
DAY_H = 24
GIB = 1 << 30
CONFIG = """
[telemetry]
aggregate = "5m"
[[price]]
plan = "on_demand"
per_hour = 7.2
[electricity]
tariff_per_kwh = 0.3
timezone = "UTC"
[[service]]
name = "chat"
engine = "vllm"
url = "http://127.0.0.1:9"
devices = ["gpu0"]
"""


def hourly(device, kind, last_ns, days, until_days_ago=0, **fields):
    """A row for each hour, at its end."""
    model = "NVIDIA A30 MIG 2g.12gb" if kind == "mig" else "NVIDIA L4"
    tags = {"device": device, "kind": kind, "uuid": device, "model": model}
    for i in range(until_days_ago * DAY_H, days * DAY_H):
        yield Point("device", tags, fields, last_ns - (i - 1) * HOUR_NS)


def served(last_ns, days):
    """One request in the first hour of each Sunday; the scrape of the second hour failed."""
    tags = {"service": "chat", "engine": "vllm"}
    for i in range(days * DAY_H):
        begins_ns = last_ns - i * HOUR_NS
        at = datetime.fromtimestamp(begins_ns // 10**9, UTC)
        fields = {"requests": 0.0, "window_s": 3600.0, "complete": True}
        if at.weekday() == 6 and at.hour < 2:
            fields |= {"requests": 1.0} if at.hour == 0 else {"complete": False}
        yield Point("serving", tags, fields, begins_ns + HOUR_NS)


@pytest.fixture
def advised(tmp_path):
    def run(*points):
        config = tmp_path / "costprobe.toml"
        config.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n{CONFIG}')
        store = Store.open(tmp_path / "costprobe.db", FakeClock())
        for rows in points:
            store.append(rows)
        store.close()
        return json.loads(called(config, "advise", "--json").stdout)

    return run


def last_hour_ns():
    """Return the start of the last complete hour."""
    return (time.time_ns() // HOUR_NS - 1) * HOUR_NS


def test_host_is_idle_if_its_devices_and_services_are_idle(advised):
    last_ns = last_hour_ns()
    found = advised(
        hourly("gpu0", "gpu", last_ns, 28, util_pct=0.0),
        hourly("gpu1", "gpu", last_ns, 28, util_pct=0.0),
        hourly("gpu2", "gpu", last_ns, 28, until_days_ago=3, util_pct=90.0),
        served(last_ns, 28),
    )
    (hint,) = [hint for hint in found["hints"] if hint["kind"] == "idle_hours"]
    # Two devices at half of the price each; the removed third device has no share.
    assert hint["devices"] == ["gpu0", "gpu1"]
    assert hint["action"].startswith("switch it off for 166 hours of the week: sun 02:00 to ")
    assert float(hint["saving_per_month"]) == pytest.approx(166 / 168 * 730 * 7.2, rel=0.001)
    assert "gpu2" not in json.dumps(found)


def test_mig_device_is_priced_by_its_slices_without_estimated_utilization(advised):
    last_ns = last_hour_ns()
    memory = {"mem_used_bytes": 1 * GIB, "mem_total_bytes": 12 * GIB}
    found = advised(
        hourly("gpu0", "gpu", last_ns, 20, power_w=100.0),
        hourly("gpu0.mig0", "mig", last_ns, 20, **memory),
    )
    (slice_of,) = [one for one in found["no_hints"] if one["kind"] == "mig_slice"]
    assert slice_of["subject"] == "gpu0.mig0"
    assert "the driver reports none for MIG devices" in slice_of["reason"]
    assert slice_of["had"] == "20.0 days of telemetry, 0.0 days of utilization"


def test_oversized_slice_saves_its_share_of_the_board(advised):
    last_ns = last_hour_ns()
    memory = {"mem_used_bytes": 1 * GIB, "mem_total_bytes": 12 * GIB}
    found = advised(
        hourly("gpu0", "gpu", last_ns, 20, power_w=100.0),
        hourly("gpu0.mig0", "mig", last_ns, 20, util_pct=30.0, **memory),
    )
    (hint,) = found["hints"]
    assert hint["action"] == "a MIG instance of 1 slice instead of 2"
    # Two of four slices cost 3.60 an hour; one of them is saved.
    assert float(hint["saving_per_month"]) == pytest.approx(1.8 * 730, rel=0.005)
