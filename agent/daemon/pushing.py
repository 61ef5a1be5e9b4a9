"""Each sink's own thread, so that a dead database delays no other."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

from agent.config import SinkConfig
from agent.model import NS_PER_S
from agent.storage.sink_outbox import SinkOutbox
from agent.storage.writer import Store

if TYPE_CHECKING:  # a daemon without a sink shall not carry these
    from agent.sinks.pusher import Pusher
    from agent.sinks.settings import SinkSettings

logger = logging.getLogger(__name__)

JOIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Pushed:
    """What all sinks came to.

    Attributes:
        outbox_points: Points that the sink furthest behind still has to be sent.
        outbox_lag_s: Age of the oldest of them in seconds.
        sent_points: Points that were acknowledged, over all sinks.
    """

    outbox_points: int
    outbox_lag_s: float
    sent_points: int


class Pushing:
    """The sinks of a configuration.

    Args:
        sinks: The sinks' configurations.
        store: The outbox.
        stop: Ends the threads.
        host: Name of this host, which picks its moments.
    """

    def __init__(self, sinks: Sequence[SinkConfig], store: Store, stop: Flag, host: str) -> None:
        self._store = store
        self._stop = stop
        self._outboxes: dict[str, SinkOutbox] = {}
        self._pushers: dict[str, Pusher] = {}
        configured = {sink.name for sink in sinks}
        for known in store.sinks():
            if known.sink not in configured:
                store.forget_sink(known.sink)
        for sink in sinks:
            store.register_sink(sink.name, from_beginning=sink.from_beginning)
            outbox = store.outbox_of(
                sink.name,
                important_first=sink.backlog == "important_first",
                max_points=sink.max_backlog_points,
            )
            self._outboxes[sink.name] = outbox
            self._pushers[sink.name] = pusher_of(sink, outbox, stop, host)
        self._threads = [
            Thread(target=pusher.run, name=f"sink {name}", daemon=True)
            for name, pusher in self._pushers.items()
        ]

    def start(self) -> None:
        """Begins to push."""
        for thread in self._threads:
            thread.start()

    def lives(self) -> dict[str, bool]:
        """Whether each thread that was started runs."""
        return {
            thread.name: thread.is_alive() for thread in self._threads if thread.ident is not None
        }

    def stop(self) -> None:
        """Ends the threads; what they had not got acknowledged is sent after the next start."""
        self._stop.set()
        for pusher in self._pushers.values():
            pusher.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)

    def retry(self, sink: str | None) -> list[str]:
        """Tries a sink again at once, or all; the names of those.

        Raises:
            KeyError: There is none of that name.
        """
        names = list(self._pushers) if sink is None else [sink]
        for name in names:
            self._pushers[name].retry_now()
        return names

    def keep_bounds(self) -> None:
        """Lets go of what waits beyond the bound of its sink, and says so."""
        for name, outbox in self._outboxes.items():
            dropped = outbox.keep_bound()
            if dropped:
                logger.warning("sink %s: its backlog is full; %d old points dropped", name, dropped)

    def status(self) -> dict[str, Any]:
        """What each sink is doing."""
        return {name: pusher.status() for name, pusher in self._pushers.items()}

    def totals(self) -> Pushed:
        """What the `agent` series says of the outbox."""
        backlogs = [self._store.backlog(name) for name in self._pushers]
        oldest_ns = min((b.oldest_time_ns for b in backlogs if b.oldest_time_ns), default=None)
        lag_s = 0.0 if oldest_ns is None else max(0.0, (time.time_ns() - oldest_ns) / NS_PER_S)
        return Pushed(
            outbox_points=max((backlog.points for backlog in backlogs), default=0),
            outbox_lag_s=lag_s,
            sent_points=sum(pusher.status()["sent"] for pusher in self._pushers.values()),
        )


def pusher_of(sink: SinkConfig, outbox: SinkOutbox, stop: Flag, host: str) -> Pusher:
    """What sends to a sink.

    Args:
        sink: The sink's configuration.
        outbox: What it has yet to be sent.
        stop: Ends it.
        host: Name of this host, which picks its moments.
    """
    # Here, and not at the top: a daemon without a sink shall not carry these.
    from agent.sinks.pusher import Pusher  # noqa: PLC0415
    from agent.sinks.registry import build_sink  # noqa: PLC0415
    from agent.sinks.turn import Turn  # noqa: PLC0415

    rng = random.Random()  # noqa: S311 - it spreads retries, it guards nothing
    return Pusher(
        sink.name,
        outbox,
        build_sink(sink_settings(sink)),
        stop,
        batch_points=sink.batch_points,
        flush_every_s=sink.flush_every_s,
        drain_points_per_s=sink.drain_points_per_s,
        rng=rng,
        turn=Turn(host, sink.name, sink.flush_every_s, rng),
    )


def sink_settings(sink: SinkConfig) -> SinkSettings:
    """A sink's settings from its configuration; secrets stay in their files."""
    from agent.sinks.settings import SinkSettings  # noqa: PLC0415 - as above

    secret_file = sink.token_file or sink.password_file
    secret_credential = sink.token_credential or sink.password_credential
    return SinkSettings(
        api=sink.api,
        url=sink.url,
        org=sink.org,
        bucket=sink.bucket,
        database=sink.database,
        retention_policy=sink.retention_policy,
        user=sink.user,
        secret_file=secret_file,
        secret_credential=secret_credential,
        ca_file=sink.ca_file,
        proxy=sink.proxy,
        timeout_s=sink.timeout_s,
    )
