"""Delivery to a sink, as the daemon does it."""

import random
import threading

from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import SINKS, build_sink
from costprobe.delivery.loop import SinkWorker

REQUIRED = {"v1": {"database": "d"}, "v2": {"org": "o", "bucket": "b"}, "otlp": {}}
SECRET = {"v1": "password", "v2": "token", "otlp": "token"}


def config_of(api, url="http://127.0.0.1:9", *, timeout_s=10.0, secret_file=None, **keys):
    """The section of a sink, with the keys that its kind requires."""
    keys = {"api": api, "url": url, "timeout": f"{timeout_s}s"} | REQUIRED[api] | keys
    if secret_file is not None:
        keys[SECRET[api]] = f"file:{secret_file}"
        if api == "v1":
            keys.setdefault("user", "u")
    return SINKS[api].config.model_validate(keys)


def sink_of(api, url="http://127.0.0.1:9", **keys):
    """The sink of a section."""
    return build_sink(config_of(api, url, **keys), SystemClock())


def send(sink, lines):
    """Encode and post lines; errors of the sink are raised."""
    sink.post(sink.encode(lines))


class ImmediateSchedule:
    """The times of a single sender: immediately, and then at the interval."""

    def __init__(self, every_s):
        self._every_s = every_s
        self._is_first = True

    def live_wait_s(self):
        wait_s, self._is_first = 0.0 if self._is_first else self._every_s, False
        return wait_s

    def backlog_wait_s(self):
        return 0.0


def worker_of(
    outbox,
    sink,
    *,
    clock=None,
    stop=None,
    rng=None,
    schedule=None,
    name="s",
    batch_points=1000,
    flush_every_s=0.01,
    drain_points_per_s=10**6,
):
    """A delivery worker that flushes often by default."""
    config = config_of(
        "v1",
        name=name,
        flush_every=f"{flush_every_s}s",
        drain_points_per_s=drain_points_per_s,
    )
    return SinkWorker(
        config,
        outbox,
        sink,
        stop or threading.Event(),
        clock or SystemClock(),
        rng=rng or random.Random(1),
        schedule=schedule or ImmediateSchedule(flush_every_s),
        batch_points=batch_points,
    )


def drain(worker, outbox, steps=10_000):
    """Step a worker until its in-memory outbox is empty."""
    for _ in range(steps):
        worker.step()
        if outbox.is_drained:
            return
    raise AssertionError("the outbox was never drained")
