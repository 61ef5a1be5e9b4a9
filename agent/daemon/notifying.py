"""Each notifier's own thread, so that a dead one delays no other."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from agent.alert import Alert, Notice
from agent.alerting.trial import trial_alert
from agent.clock import Clock
from agent.config_notifier import AlertmanagerConfig, NotifierConfig
from agent.notifying.courier import Courier, CourierSettings
from agent.notifying.registry import build_sender
from agent.notifying.sender import Misconfigured, Refused, RetryLater, Sender
from agent.storage.errors import StoreError
from agent.storage.notices import QueuedNotice
from agent.storage.writer import Store

JOIN_S = 1.0
ALERTS_PER_POST = 100


class StoreQueue:
    """A notifier's queue in the store, as its courier sees it.

    Args:
        store: The one writer.
        notifier: The notifier's name.
    """

    def __init__(self, store: Store, notifier: str) -> None:
        self._store = store
        self._notifier = notifier

    def waiting(self, limit: int) -> Sequence[QueuedNotice]:
        """Up to `limit` notices, the oldest first."""
        return self._store.notices(self._notifier, limit)

    def sent(self, notices: Sequence[int]) -> None:
        """Removes notices that were told."""
        self._store.notices_sent(notices)

    def dropped(self, notice: int, reason: str) -> None:
        """Removes a notice that will never be told, and counts it."""
        self._store.notice_dropped(notice, reason)


class Notifying:
    """The notifiers of a configuration.

    Args:
        notifiers: Their configurations.
        store: Keeps what they have yet to tell.
        clock: The host's clocks.
        stop: Ends the threads.
        firing_for: What a notifier was told and still fires.
        tags: Host and static labels, for tests.
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
        for known in store.notifiers():
            if known.notifier not in self._configs:
                store.forget_notifier(known.notifier)
        self._senders = {name: _sender(config) for name, config in self._configs.items()}
        self._couriers = {
            name: Courier(
                StoreQueue(store, name),
                self._senders[name],
                _settings(config),
                clock=clock,
                stop=stop,
                rng=random.Random(),  # noqa: S311 - it spreads retries, it guards nothing
                firing=lambda name=name: firing_for(name),  # type: ignore[misc]
            )
            for name, config in self._configs.items()
        }
        self._threads = [
            Thread(target=courier.run, name=f"notifier {name}", daemon=True)
            for name, courier in self._couriers.items()
        ]

    def start(self) -> None:
        """Begins to tell."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Says that there is something to tell."""
        for courier in self._couriers.values():
            courier.wake()

    def tell_unstored(self, notices: Sequence[Notice]) -> None:
        """Tells what the store could not keep, without it."""
        for name, courier in self._couriers.items():
            alerts = [notice.alert for notice in notices if notice.notifier == name]
            if alerts:
                courier.tell_unstored(alerts)

    def lives(self) -> dict[str, bool]:
        """Whether each thread that was started runs."""
        return {
            thread.name: thread.is_alive() for thread in self._threads if thread.ident is not None
        }

    def stop(self) -> None:
        """Ends the threads; what was not told is told after the next start."""
        self._stop.set()
        self.wake()
        for sender in self._senders.values():
            sender.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)

    def status(self) -> dict[str, Any]:
        """What each notifier is doing."""
        try:
            kept = {status.notifier: status for status in self._store.notifiers()}
        except StoreError:
            kept = {}  # the store's own fault says why
        found: dict[str, Any] = {}
        for name, courier in self._couriers.items():
            queue = kept.get(name)
            found[name] = {
                **courier.status(),
                "kind": self._configs[name].kind,
                "queued": queue.queued if queue else 0,
                "sent": queue.sent if queue else 0,
                "dropped": queue.dropped if queue else 0,
                "last_sent_ns": queue.last_sent_ns if queue else None,
                "last_dropped": queue.last_reason if queue else "",
            }
        return found

    def send_test(self, notifier: str | None) -> Mapping[str, str]:
        """Tells a test at once, past the queues.

        Args:
            notifier: Its name; None for all.

        Returns:
            For each notifier "" or what went wrong.

        Raises:
            KeyError: There is none of that name.
        """
        names = list(self._configs) if notifier is None else [notifier]
        return {name: self._tested(self._configs[name]) for name in names}

    def _tested(self, config: NotifierConfig) -> str:
        # A sender of its own: the courier's is used by the courier's thread alone.
        sender = _sender(config)
        now_ns = self._clock.time_ns()
        try:
            sender.send([trial_alert(now_ns, self._tags)], now_ns)
        except (RetryLater, Refused, Misconfigured) as error:
            return error.reason
        except Exception as error:  # noqa: BLE001 - its text may hold a secret
            return f"unexpected {type(error).__name__}"
        finally:
            sender.close()
        return ""


def _sender(config: NotifierConfig) -> Sender:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return build_sender(config, Path(folder) if folder else None)


def _settings(config: NotifierConfig) -> CourierSettings:
    is_alertmanager = isinstance(config, AlertmanagerConfig)
    return CourierSettings(
        name=config.name,
        rate_per_minute=config.rate_per_minute,
        keep_s=config.keep_s,
        batch=ALERTS_PER_POST if is_alertmanager else 1,
        refresh_every_s=config.resend_every_s if isinstance(config, AlertmanagerConfig) else None,
    )
