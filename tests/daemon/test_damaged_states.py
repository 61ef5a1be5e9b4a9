"""State documents of another shape, which only the service's rights can write, are discarded."""

from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from fakes.scenes import WORKER
from fakes.servers import free_port

CONFIG = """
[telemetry]
gpus = false
cpu = true
every = "100ms"
[probing]
duty = 1
[[probe]]
name = "quick"
batch = 1
energy = false
python = "{worker}"
when_busy = "run"
[[service]]
name = "chat"
url = "http://127.0.0.1:{port}"
engine = "vllm"
devices = ["cpu"]
[[price]]
plan = "on_demand"
per_hour = 3.6
[[budget]]
name = "all"
amount = 50
period = "day"
"""
DISCARDED = ("terms cpu", "probe cpu quick", "job cpu quick", "duty cpu", "service chat")
STATES = (*DISCARDED, "alerts", "alerting", "status", "budgets")
SHAPES = ("x", {"version": 1, "last": 7, "rate": [], "alerts": [7]}, 7, ["y"])


def test_daemon_discards_documents_of_another_shape(daemon_in):
    daemon = daemon_in()
    store = Store.open(daemon.store, SystemClock())
    for number, name in enumerate(STATES):
        store.put_state(name, SHAPES[number % len(SHAPES)])
    store.close()
    daemon.start(CONFIG.format(worker=WORKER, port=free_port()))
    daemon.wait_for(lambda: daemon.points("cost", probe="quick"))
    daemon.wait_for(lambda: daemon.points("device", device="cpu"))
    daemon.stop()
    output = daemon.output.read_text()
    assert "Traceback" not in output
    assert [name for name in DISCARDED if f"the stored {name} is damaged" not in output] == []
