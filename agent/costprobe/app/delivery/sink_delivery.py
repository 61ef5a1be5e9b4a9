"""Delivery of the stored series to the configured sinks."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

from costprobe.adapters.sinks.registry import build_sink
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.outbox.outbox import Rejections
from costprobe.adapters.storage.outbox.sink_outbox import SinkOutbox
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Event

if TYPE_CHECKING:  # a daemon without a sink must not load these
    from costprobe.adapters.sinks.outbox_worker import OutboxWorker

logger = logging.getLogger(__name__)

JOIN_S = 1.0
# Rejected points are a fault for this long after the last one.
REJECTED_FAULT_NS = 3600 * NS_PER_S


@dataclass(frozen=True, slots=True)
class DeliveryTotals:
    """Delivery totals over all sinks.

    Attributes:
        outbox_points: Points that the sink with the largest backlog has not acknowledged.
        outbox_lag_s: Age of the oldest of them in s.
        sent_points: Points that were acknowledged, over all sinks.
    """

    outbox_points: int
    outbox_lag_s: float
    sent_points: int


class SinkDelivery:
    """The delivery threads of the configured sinks: one each, so that no sink delays another.

    Args:
        sinks: The sinks' configuration.
        store: The outbox.
        clock: The host's clocks.
        stop: Ends the threads.
        host: Name of this host, which determines its flush schedule.
    """

    def __init__(
        self, sinks: Sequence[SinkConfig], store: Store, clock: Clock, stop: Flag, host: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._stop = stop
        self._outboxes: dict[str, SinkOutbox] = {}
        self._workers: dict[str, OutboxWorker] = {}
        self._rejections: dict[str, Rejections] = {}
        configured = {sink.name for sink in sinks}
        for stored in store.sinks():
            if stored.sink not in configured:
                store.forget_sink(stored.sink)
        for sink in sinks:
            store.register_sink(sink.name, from_beginning=sink.from_beginning)
            outbox = store.outbox_of(
                sink.name,
                important_first=sink.backlog == "important_first",
                max_points=sink.max_backlog_points,
            )
            self._outboxes[sink.name] = outbox
            rejections = store.rejections(sink.name)
            if rejections is not None:
                self._rejections[sink.name] = rejections
            self._workers[sink.name] = worker_of(sink, outbox, clock, stop, host)
        self._threads = [
            Thread(target=worker.run, name=f"sink {name}", daemon=True)
            for name, worker in self._workers.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def liveness(self) -> dict[str, bool]:
        """Return whether each started thread is alive, by name."""
        return {
            thread.name: thread.is_alive() for thread in self._threads if thread.ident is not None
        }

    def stop(self) -> None:
        """End the threads; unacknowledged rows are sent after the next start."""
        self._stop.set()
        for worker in self._workers.values():
            worker.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)

    def retry(self, sink: str | None) -> list[str]:
        """Retry a sink now, or all of them; return their names.

        Raises:
            KeyError: No sink has that name.
        """
        names = list(self._workers) if sink is None else [sink]
        for name in names:
            self._workers[name].retry_now()
        return names

    def keep_bounds(self) -> None:
        """Discard rows beyond a sink's `max_backlog_points`, and log it."""
        for name, outbox in self._outboxes.items():
            dropped = outbox.keep_bound()
            if dropped:
                logger.warning("sink %s: backlog is full; discarded %d old points", name, dropped)

    def new_rejections(self) -> list[Event]:
        """Read the rejections of each sink; return an event if they begin again after an hour."""
        events: list[Event] = []
        for name in self._workers:
            before = self._rejections.get(name)
            try:
                now = self._store.rejections(name)
            except StoreError:
                return events  # the store reports its own fault
            if now is None or now == before:
                continue
            self._rejections[name] = now
            if before is None or now.last_ns - before.last_ns > REJECTED_FAULT_NS:
                events.append(_rejection_event(name, now))
        return events

    def status(self) -> dict[str, Any]:
        """Return the status of each sink, by name."""
        return {
            name: {**worker.status(), "rejections": self._recent_rejections(name)}
            for name, worker in self._workers.items()
        }

    def _recent_rejections(self, sink: str) -> dict[str, Any] | None:
        rejections = self._rejections.get(sink)
        if rejections is None or self._clock.time_ns() - rejections.last_ns > REJECTED_FAULT_NS:
            return None
        return rejections._asdict()

    def totals(self) -> DeliveryTotals:
        """Return the totals for the `agent` series."""
        backlogs = [self._store.backlog(name) for name in self._workers]
        oldest_ns = min((b.oldest_time_ns for b in backlogs if b.oldest_time_ns), default=None)
        now_ns = self._clock.time_ns()
        lag_s = 0.0 if oldest_ns is None else max(0.0, (now_ns - oldest_ns) / NS_PER_S)
        return DeliveryTotals(
            outbox_points=max((backlog.points for backlog in backlogs), default=0),
            outbox_lag_s=lag_s,
            sent_points=sum(worker.status()["sent_points"] for worker in self._workers.values()),
        )


def _rejection_event(sink: str, rejections: Rejections) -> Event:
    return Event(
        kind="fault",
        severity="warning",
        title=f"sink {sink}: the database permanently rejects points",
        time_ns=rejections.last_ns,
        detail=f"{rejections.reason}; see `costprobe sink rejected {sink}`",
        cause="rows_rejected",
    )


def worker_of(
    sink: SinkConfig, outbox: SinkOutbox, clock: Clock, stop: Flag, host: str
) -> OutboxWorker:
    """Return the delivery worker of a sink.

    Args:
        sink: The sink's configuration.
        outbox: The rows that it has not acknowledged.
        clock: The host's clocks.
        stop: Ends the worker.
        host: Name of this host, from which its flush schedule follows.
    """
    # Imported here: a daemon without a sink must not load these.
    from costprobe.adapters.sinks.flush_schedule import FlushSchedule  # noqa: PLC0415
    from costprobe.adapters.sinks.outbox_worker import OutboxWorker  # noqa: PLC0415

    rng = random.Random()  # noqa: S311 - it spreads retries, it guards nothing
    schedule = FlushSchedule(host, sink.name, sink.flush_every_s, rng, clock)
    return OutboxWorker(
        sink, outbox, build_sink(sink, clock), stop, clock, rng=rng, schedule=schedule
    )
