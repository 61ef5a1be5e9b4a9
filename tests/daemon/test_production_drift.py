"""The parts of a daemon report that requests of a service take more device time."""

from contextlib import closing

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.adapters.store.write import Store
from costprobe.alerts.watching import Watching
from costprobe.configuration import Config
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.records import Point
from costprobe.daemon.parts import watched_sections
from fakes.clock import FakeClock

WINDOW_S = 0.5
REQUESTS = 200
HARDWARE = WINDOW_S / 3600
SERVICE = {"name": "chat", "url": "http://h", "engine": "vllm", "devices": ["gpu0"]}
CONFIG = Config.model_validate({"detection": {"serving_window": "500ms"}, "service": [SERVICE]})
TAGS = {"service": "chat", "basis": "serving", "device": "gpu0", "plan": "owned", "currency": "EUR"}


def window(number, busy_share, time_ns):
    """The row of a window on a device at 1 an hour; the load varies a little."""
    requests = REQUESTS * (1 + 0.02 * (number % 5 - 2))
    busy_s = busy_share * WINDOW_S * requests / REQUESTS
    fields = {
        "cost_total": HARDWARE,
        "cost_total_hardware": HARDWARE,
        "cost_total_energy": 0.0,
        "cost_idle": HARDWARE * (1 - busy_s / WINDOW_S),
        "device_s": WINDOW_S,
        "device_busy_s": busy_s,
        **dict.fromkeys(("requests", "inferences"), requests),
        "tokens_in": requests * 100,
        "tokens_out": requests * 50,
        "cached_tokens": 0.0,
        **dict.fromkeys(("cost_tokens_in", "cost_tokens_out"), HARDWARE / 2),
        "window_s": WINDOW_S,
    }
    return Point("cost", TAGS, fields, time_ns)


def test_more_device_time_per_request_is_reported(tmp_path):
    clock, events = FakeClock(), []
    with closing(Store.open(tmp_path / "costprobe.db", clock)) as store:
        parts = (store, MemoryLedger(), clock, {"host": "h"}, ClockMonitor(clock))
        watching = Watching(watched_sections(CONFIG), *parts)
        for number in range(140):
            clock.move(WINDOW_S)
            rows = [window(number, 0.4 if number < 70 else 0.54, clock.time_ns())]
            events += [(number, event) for event in watching.take(rows)]
            watching.tick([])
        (alert,) = store.state("alerts")["alerts"]
    ((number, event),) = events
    assert number >= 70
    assert (
        event.tags.items() >= {"kind": "drift", "service": "chat", "metric": "serving_time"}.items()
    )
    assert event.fields["cause"] == "efficiency"
    assert event.fields["change_pct"] == pytest.approx(35, abs=5)
    assert "device time per token of chat is +" in alert["summary"]
