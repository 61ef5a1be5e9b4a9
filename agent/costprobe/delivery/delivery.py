"""The sinks and notifiers of a configuration, each delivered to by a worker of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from threading import Event as Flag
from threading import Thread
from typing import Any, Generic, TypeVar

from costprobe.adapters.http.errors import DeliveryError
from costprobe.adapters.store.cursors import NotifierStatus
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.write import Store
from costprobe.core.clock import Clock
from costprobe.core.incident import Alert, Notice, Symptom
from costprobe.core.records import NS_PER_S, Event
from costprobe.delivery.contract import NotifierConfig, SinkConfig
from costprobe.delivery.kinds import build_notifier, build_sink
from costprobe.delivery.loop import FlushSchedule, NotifierWorker, SinkWorker, Worker

JOIN_S = 1.0
# Rejected points are a fault for this long after the last one.
REJECTED_FAULT_NS = 3600 * NS_PER_S


def sample_alert(time_ns: int, tags: Mapping[str, str]) -> Alert:
    """Return an alert that identifies itself as a test.

    Args:
        time_ns: Current UTC in ns.
        tags: Host and static labels.
    """
    symptom = Symptom("test", "test", "this is how costprobe sends notifications", time_ns)
    return Alert(
        id=f"test-{time_ns}",
        name="test",
        state="firing",
        severity="info",
        labels=dict(tags),
        summary="This is a test; no action is needed.",
        symptoms=(symptom,),
        since_ns=time_ns,
        fired_ns=time_ns,
        is_test=True,
    )


AnyWorker = TypeVar("AnyWorker", bound=Worker)


class _Workers(Generic[AnyWorker]):
    """Workers, each on a thread of its own, so that none delays another.

    Args:
        workers: The workers by the name of their destination.
        stop: Ends the threads.
    """

    def __init__(self, workers: Mapping[str, AnyWorker], stop: Flag) -> None:
        self._workers = workers
        self._stop = stop
        self._threads = [
            Thread(target=worker.run, name=worker.label, daemon=True) for worker in workers.values()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """End the workers' waits: there is something new."""
        for worker in self._workers.values():
            worker.wake()

    def liveness(self) -> dict[str, bool]:
        """Return whether each started thread is alive, by name."""
        return {
            thread.name: thread.is_alive() for thread in self._threads if thread.ident is not None
        }

    def stop(self) -> None:
        """End the threads; what was not delivered is delivered after the next start."""
        self._stop.set()
        self.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)


class Notifying(_Workers[NotifierWorker]):
    """The notifiers of a configuration.

    Args:
        notifiers: Their sections.
        store: Stores their queues.
        clock: The host's clocks.
        stop: Ends the threads.
        firing_for: Returns the alerts that a notifier delivered and that are still firing.
        tags: Host and static labels, for test alerts.
    """

    def __init__(
        self,
        notifiers: Sequence[NotifierConfig],
        store: Store,
        clock: Clock,
        stop: Flag,
        firing_for: Callable[[str], Sequence[Alert]],
        tags: Mapping[str, str],
    ) -> None:
        self._configs = {notifier.name: notifier for notifier in notifiers}
        self._store = store
        self._clock = clock
        self._tags = dict(tags)
        for stored in store.notifiers():
            if stored.notifier not in self._configs:
                store.forget_notifier(stored.notifier)
        workers = {
            name: NotifierWorker(
                store,
                name,
                build_notifier(config),
                clock=clock,
                stop=stop,
                rng=random.Random(),  # noqa: S311 - spreads retries, protects nothing
                firing=partial(firing_for, name),
            )
            for name, config in self._configs.items()
        }
        super().__init__(workers, stop)

    def send_unstored(self, notices: Sequence[Notice]) -> None:
        """Deliver notices that could not be stored."""
        for name, worker in self._workers.items():
            alerts = [notice.alert for notice in notices if notice.notifier == name]
            if alerts:
                worker.send_unstored(alerts)

    def stop(self) -> None:
        """End the threads and what they wait for; queued notices are delivered after the next start."""
        self._stop.set()
        for worker in self._workers.values():
            worker.close()
        super().stop()

    def status(self) -> dict[str, Any]:
        """Return the state of each notifier and its queue, for `costprobe status`."""
        try:
            stored = {status.notifier: status for status in self._store.notifiers()}
        except StoreError:
            stored = {}  # the store reports its own fault
        statuses: dict[str, Any] = {}
        for name, worker in self._workers.items():
            queue = stored.get(name) or NotifierStatus(name, 0, None, 0, 0, None, "")
            statuses[name] = {
                **worker.status(),
                "kind": self._configs[name].kind,
                "queued": queue.queued,
                "sent": queue.sent,
                "dropped": queue.dropped,
                "last_sent_ns": queue.last_sent_ns,
                "last_dropped": queue.last_reason,
            }
        return statuses

    def send_test(self, notifier: str | None) -> Mapping[str, str]:
        """Send a test alert immediately, without the queues.

        Args:
            notifier: Its name; None for all.

        Returns:
            For each notifier the error; empty if the alert was sent.

        Raises:
            KeyError: No notifier has that name.
        """
        return send_tests(self._configs, notifier, sample_alert(self._clock.time_ns(), self._tags))


def send_tests(
    configs: Mapping[str, NotifierConfig], notifier: str | None, alert: Alert
) -> dict[str, str]:
    """Send a test alert; result and errors as of `Notifying.send_test`.

    Args:
        configs: The sections of the notifiers by name.
        notifier: Its name; None for all.
        alert: The alert.
    """
    errors = dict.fromkeys(configs if notifier is None else [notifier], "")
    for name in errors:
        # A new instance, because only the worker's thread may use that of the worker.
        with closing(build_notifier(configs[name])) as sender:
            try:
                sender.send([alert], alert.since_ns)
            except DeliveryError as error:
                errors[name] = error.reason
            except Exception as error:  # noqa: BLE001 - its text may contain a secret
                errors[name] = f"unexpected {type(error).__name__}"
    return errors


class SinkDelivery(_Workers[SinkWorker]):
    """The delivery threads of the configured sinks.

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
        for stored in store.sinks():
            if stored.sink not in {sink.name for sink in sinks}:
                store.forget_sink(stored.sink)
        rng = random.Random()  # noqa: S311 - it spreads retries, it guards nothing
        workers = {}
        for sink in sinks:
            store.register_sink(sink.name)
            workers[sink.name] = SinkWorker(
                sink,
                store.outbox_of(sink.name),
                build_sink(sink, clock),
                stop,
                clock,
                rng=rng,
                schedule=FlushSchedule(host, sink.name, sink.flush_every_s, rng, clock),
            )
        self._rejections = {name: store.rejections(name) for name in workers}
        super().__init__(workers, stop)

    def retry(self, sink: str | None) -> list[str]:
        """Retry a sink now, or all of them; return their names.

        Raises:
            KeyError: No sink has that name.
        """
        names = list(self._workers) if sink is None else [sink]
        for name in names:
            self._workers[name].retry_now()
        return names

    def new_rejections(self) -> list[Event]:
        """Return an event for each sink that began to reject points permanently."""
        events = []
        for name, before in self._rejections.items():
            try:
                now = self._store.rejections(name)
            except StoreError:
                break  # the store reports its own fault
            if now is None or now == before:
                continue
            self._rejections[name] = now
            if before is None or now.last_ns - before.last_ns > REJECTED_FAULT_NS:
                event = Event(
                    kind="fault",
                    severity="warning",
                    title=f"sink {name}: the database permanently rejects points",
                    time_ns=now.last_ns,
                    detail=f"{now.reason}; see `costprobe sink rejected {name}`",
                    cause="rows_rejected",
                )
                events.append(event)
        return events

    def status(self) -> dict[str, Any]:
        """Return the status of each sink, by name."""
        oldest_ns = self._clock.time_ns() - REJECTED_FAULT_NS
        recent = {
            name: rejections._asdict()
            for name, rejections in self._rejections.items()
            if rejections is not None and rejections.last_ns >= oldest_ns
        }
        return {
            name: {**worker.status(), "rejections": recent.get(name)}
            for name, worker in self._workers.items()
        }

    def totals(self) -> dict[str, float]:
        """Return the totals for the `agent` series, by field.

        The outbox is that of the sink with the largest backlog, and its lag the age of the oldest row
        that any sink has not acknowledged.
        """
        backlogs = [self._store.backlog(name) for name in self._workers]
        now_ns = self._clock.time_ns()
        oldest_ns = min((b.oldest_time_ns for b in backlogs if b.oldest_time_ns), default=now_ns)
        return {
            "outbox_points": max((backlog.points for backlog in backlogs), default=0),
            "outbox_lag_s": max(0.0, (now_ns - oldest_ns) / NS_PER_S),
            "sent_points": sum(worker.status()["sent_points"] for worker in self._workers.values()),
        }
