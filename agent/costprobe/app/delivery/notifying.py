"""The delivery workers of notifiers, one thread each, so that none delays another."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from threading import Thread
from typing import Any

from costprobe.adapters.net.errors import DeliveryError
from costprobe.adapters.net.secret import credentials_folder
from costprobe.adapters.notifiers.delivery_worker import DeliveryWorker
from costprobe.adapters.notifiers.notifier import Notifier
from costprobe.adapters.notifiers.registry import build_notifier
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.outbox.notice_queue import QueuedNotice
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import Clock
from costprobe.core.incident import Alert, Notice
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.domain.alerting.sample_alert import sample_alert

JOIN_S = 1.0


class StoreQueue:
    """A notifier's queue in the store.

    Args:
        store: The store that this process writes.
        notifier: The notifier's name.
    """

    def __init__(self, store: Store, notifier: str) -> None:
        self._store = store
        self._notifier = notifier

    def waiting(self, limit: int) -> Sequence[QueuedNotice]:
        """Return up to `limit` notices, oldest first."""
        return self._store.notices(self._notifier, limit)

    def sent(self, notices: Sequence[int]) -> None:
        """Remove notices that were delivered."""
        self._store.notices_sent(notices)

    def dropped(self, notice: int, reason: str) -> None:
        """Remove a notice that will not be delivered, and count it."""
        self._store.notice_dropped(notice, reason)


class Notifying:
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
        self._stop = stop
        self._tags = dict(tags)
        for stored in store.notifiers():
            if stored.notifier not in self._configs:
                store.forget_notifier(stored.notifier)
        self._notifiers = {name: _build(config) for name, config in self._configs.items()}
        self._workers = {
            name: DeliveryWorker(
                StoreQueue(store, name),
                self._notifiers[name],
                config,
                clock=clock,
                stop=stop,
                rng=random.Random(),  # noqa: S311 - spreads retries, protects nothing
                firing=lambda name=name: firing_for(name),  # type: ignore[misc]
            )
            for name, config in self._configs.items()
        }
        self._threads = [
            Thread(target=worker.run, name=f"notifier {name}", daemon=True)
            for name, worker in self._workers.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """End the workers' waits: there are new notices."""
        for worker in self._workers.values():
            worker.wake()

    def send_unstored(self, notices: Sequence[Notice]) -> None:
        """Deliver notices that could not be stored."""
        for name, worker in self._workers.items():
            alerts = [notice.alert for notice in notices if notice.notifier == name]
            if alerts:
                worker.send_unstored(alerts)

    def liveness(self) -> dict[str, bool]:
        """Return whether each started thread is alive, by name."""
        return {
            thread.name: thread.is_alive() for thread in self._threads if thread.ident is not None
        }

    def stop(self) -> None:
        """End the threads; queued notices are delivered after the next start."""
        self._stop.set()
        self.wake()
        for notifier in self._notifiers.values():
            notifier.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)

    def status(self) -> dict[str, Any]:
        """Return the state of each notifier and its queue, for `costprobe status`."""
        try:
            stored = {status.notifier: status for status in self._store.notifiers()}
        except StoreError:
            stored = {}  # the store reports its own fault
        statuses: dict[str, Any] = {}
        for name, worker in self._workers.items():
            queue = stored.get(name)
            statuses[name] = {
                **worker.status(),
                "kind": self._configs[name].kind,
                "queued": queue.queued if queue else 0,
                "sent": queue.sent if queue else 0,
                "dropped": queue.dropped if queue else 0,
                "last_sent_ns": queue.last_sent_ns if queue else None,
                "last_dropped": queue.last_reason if queue else "",
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
        names = list(self._configs) if notifier is None else [notifier]
        return {name: self._send_test(self._configs[name]) for name in names}

    def _send_test(self, config: NotifierConfig) -> str:
        # A new instance, because only the worker's thread may use that of the worker.
        notifier = _build(config)
        now_ns = self._clock.time_ns()
        try:
            notifier.send([sample_alert(now_ns, self._tags)], now_ns)
        except DeliveryError as error:
            return error.reason
        except Exception as error:  # noqa: BLE001 - its text may contain a secret
            return f"unexpected {type(error).__name__}"
        finally:
            notifier.close()
        return ""


def _build(config: NotifierConfig) -> Notifier:
    return build_notifier(config, credentials_folder(os.environ))
