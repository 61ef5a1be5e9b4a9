"""The comparison of what costprobe reads of a real engine with what a client counted."""

import json
import signal
import statistics
import time

from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.serving.meter import ServiceMeter
from costprobe.serving.settings import ServiceConfig
from engines.load import Tally
from fakes.scenes import OWNED, QUICK_STATUS

MEASURES = ("requests", "errors", "inferences", "tokens_in", "tokens_out")
TIMED_CALLS = 12
SETTLED_S = 2.0


def service_keys(engine):
    """The keys of the engine's service."""
    return {
        "name": "real",
        "url": engine.metrics_url,
        "engine": engine.preset,
        "devices": ["gpu0"],
        "every": "1s",
        "window": "4s",
    }


def service_table(engine):
    """The configuration of a daemon that reads the engine."""
    lines = [f"{key} = {_toml(value)}" for key, value in service_keys(engine).items()]
    return QUICK_STATUS + OWNED + "\n[[service]]\n" + "\n".join(lines) + "\n"


def probe_table(engine):
    """The configuration of one probe of the engine."""
    keys = {"name": "real", "url": engine.url, "every": "1h", "requests": 32, **engine.probe()}
    return "\n[[probe]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


class Windows:
    """The rows of `serving` that a daemon wrote."""

    def __init__(self, daemon):
        self._daemon = daemon

    def all(self):
        """Its rows of the whole service."""
        rows = self._daemon.points("serving", service="real")
        return [row for row in rows if "served_model" not in row.tags]

    def settle(self):
        """Wait until a complete window began after now; return the sums of all windows."""
        now_ns = time.time_ns()
        self._daemon.wait_for(
            lambda: [
                row
                for row in self.all()
                if row.fields["complete"] and row.time_ns - row.fields["window_s"] * 1e9 > now_ns
            ]
        )
        return self.sums()

    def sums(self):
        """The sum of each measure that was ever read."""
        rows = self.all()
        return {
            name: sum(row.fields.get(name) or 0 for row in rows)
            for name in MEASURES
            if any(name in row.fields for row in rows)
        }


def difference(after, before):
    """What was counted between two sums."""
    return {name: round(value - before.get(name, 0), 6) for name, value in after.items()}


def deviations(counted, expected):
    """The measures that are outside of what the client's count allows, in words."""
    return [
        f"{measure}: counted {counted.get(measure)}, the client {low} to {high}"
        for measure, (low, high) in expected.items()
        if not (measure in counted and low <= counted[measure] <= high)
    ]


def meter_of(engine, clock):
    """A meter of the engine without a daemon, whose readings the test chooses."""
    config = ServiceConfig.model_validate({**service_keys(engine), "every": "30s", "window": "1m"})
    fetch = MetricsFetcher(config)
    return ServiceMeter(config, fetch, clock.monotonic_ns, clock.time_ns)


def after_restart(engine, process, meter, load=Tally):
    """Kill the engine and start it again, send a load, and close the window; return it and the tally."""
    process.stop(signal.SIGKILL)
    process.start()
    tally = engine.warm_up() + load()
    # A finished request is counted a moment after its answer.
    time.sleep(SETTLED_S)
    return meter.close_window(), tally


def counts_of(window):
    """The counts of a closed window."""
    whole = window.total
    return {name: getattr(whole, name) for name in MEASURES if getattr(whole, name) is not None}


def timings(engine):
    """The client's own times, of calls one after another: median and mean in ms."""
    tally = engine.timed()
    for _ in range(TIMED_CALLS - 1):
        tally += engine.timed()
    return tally, statistics.median(tally.latencies_ms)
