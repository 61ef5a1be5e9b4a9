"""A real daemon reports that requests of a service take more device time, from a scripted endpoint."""

import threading
import time

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S, Point
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine

WINDOW_S = 0.5
HISTORY = 70
REQUESTS_PER_S = 400
SERVICE = """
[detection]
serving_window = "500ms"
[[service]]
name = "chat"
url = "URL"
engine = "vllm"
devices = ["gpu0"]
every = "250ms"
window = "500ms"
"""


def history(now_ns):
    """Rows of a device that was busy for 40 % of the time, at 1 an hour."""
    count = REQUESTS_PER_S * WINDOW_S
    hardware = WINDOW_S / 3600
    for index in range(HISTORY, 0, -1):
        # The load varies a little.
        requests = count * (1 + 0.02 * (index % 5 - 2))
        busy_s = 0.4 * WINDOW_S * requests / count
        fields = {
            "cost_total": hardware,
            "cost_total_hardware": hardware,
            "cost_total_energy": 0.0,
            "cost_idle": hardware * (1 - busy_s / WINDOW_S),
            "device_s": WINDOW_S,
            "device_busy_s": busy_s,
            **dict.fromkeys(("requests", "inferences"), requests),
            "tokens_in": requests * 100,
            "tokens_out": requests * 50,
            "cached_tokens": 0.0,
            **dict.fromkeys(("cost_tokens_in", "cost_tokens_out"), hardware / 2),
            "window_s": WINDOW_S,
        }
        tags = {"service": "chat", "basis": "serving", "device": "gpu0", "plan": "owned"}
        tags["currency"] = "EUR"
        yield Point("cost", tags, fields, now_ns - round(index * WINDOW_S * NS_PER_S))


def test_more_device_time_per_request_is_reported(daemon_in, gpus):
    # 35 % more than before, for the same requests.
    gpus.gpus[0].set(util_pct=54)
    engine = ServingEngine()
    is_over = threading.Event()

    def serve():
        done, begun_s = 0, time.monotonic()
        while not is_over.wait(0.02):
            due = int((time.monotonic() - begun_s) * REQUESTS_PER_S)
            engine.serve(requests=due - done)
            done = due

    with engine.over_http() as server:
        engine.serve(requests=1)
        daemon = daemon_in(**gpus.env())
        store = Store.open(daemon.store, SystemClock())
        store.append(list(history(time.time_ns())))
        store.close()
        threading.Thread(target=serve, daemon=True).start()
        try:
            daemon.start(QUICK_STATUS + OWNED + SERVICE.replace("URL", server.url))
            (event, *_) = daemon.wait_for(
                lambda: daemon.points("event", kind="drift", metric="serving_time")
            )
            daemon.wait_for(
                lambda: [alert for alert in daemon.state("alerts")["alerts"] if alert["symptoms"]]
            )
            shown = daemon.look("alerts")
        finally:
            is_over.set()
    assert event.tags["service"] == "chat"
    assert event.fields["cause"] == "efficiency"
    assert event.fields["change_pct"] == pytest.approx(35, abs=15)
    assert "device time per token of chat is +" in shown
