"""`costprobe trend` of a service: changes are those of sums, also after rows were rolled up."""

import re
import time

import pytest
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

S = 10**9
HOUR_NS = 3600 * S


@pytest.fixture(params=["rows", "hours"])
def trend(request, tmp_path):
    """Four days of a service with a daily pattern; the last day has a quarter more requests."""
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n')
    now_ns = time.time_ns() // HOUR_NS * HOUR_NS - 300 * S
    tags = {"service": "chat", "basis": "serving", "currency": "USD", "team": "search"}
    rows = []
    for back in range(96 * 12):
        end_ns = now_ns - back * 300 * S
        count = (40.0 if 8 <= (end_ns - 1) // HOUR_NS % 24 < 20 else 4.0) * (
            1.25 if back < 288 else 1
        )
        fields = {"cost_total": 0.3, "requests": count, "inferences": count, "window_s": 300.0}
        fields |= {"cost_total_hardware": 0.3, "device_s": 300.0, "device_busy_s": 3 * count}
        each = {"cost_per_inference": 0.3 / count, "cost_per_request": 0.3 / count}
        rows.append(Point("cost", tags, {**fields, **each}, end_ns))
        served = {"requests": count, "window_s": 300.0, "complete": True}
        rows.append(Point("serving", {"service": "chat"}, served, end_ns))
    store = Store.open(tmp_path / "costprobe.db", FakeClock())
    store.append(rows)
    if request.param == "hours":
        while not store.retain(KeepSince(now_ns, now_ns, 0, 0), 10_000).is_done:
            pass
    store.close()

    def run(*arguments):
        text = called(config, "trend", "--no-plot", *arguments).output
        return re.search(r"([+-][\d.]+) %", text)[1], text

    return run


def test_change_of_a_service_compares_whole_days(trend):
    change, text = trend("--since", "26h", "--label", "team=search")
    assert float(change) == pytest.approx(-20, abs=1e-6)
    assert "change of services: " in text
    assert (
        "chat: -20.0 % per inference; traffic 25 % higher: -20 % per inference is idle time" in text
    )
    assert float(trend("--since", "25h", "--field", "serving.requests")[0]) == pytest.approx(
        25, abs=1
    )
