"""One source of a value that changes over time: read, stored, and checked for staleness."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from threading import Lock
from typing import Any, Final

from costprobe.adapters.feeds.source import (
    TIMEOUT_S,
    SourceError,
    read_price_list,
    read_source,
)
from costprobe.adapters.net.backoff import RetryBackoff
from costprobe.adapters.system.outside_text import outside_text
from costprobe.app.accounting.ledger import Ledger
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.pricing.catalogue.offer import catalogue_prices
from costprobe.domain.pricing.plans.feed import FeedPlan
from costprobe.domain.pricing.price_lists import only_price
from costprobe.domain.pricing.source import SourceConfig
from costprobe.domain.pricing.timed import TimedValue, TimedValues

logger = logging.getLogger(__name__)

# Limit of the wait after a first failure; it doubles with each, up to the source's own interval.
RETRY_S: Final = 300.0


def _now(news: Sequence[TimedValue], now_ns: int) -> int:
    del news
    return now_ns


@dataclass(frozen=True, slots=True)
class FeedKind:
    """The kind of a feed.

    Attributes:
        title: Its name in events: "spot price NAME".
        noun: Name of a value: "price".
        state: Name of its stored document.
        parse: Parses the source's output at a UTC ns.
        valid_until_ns: Returns the UTC ns up to which values just read are valid.
    """

    title: str
    noun: str
    state: str
    parse: Callable[[str, int], list[TimedValue]]
    valid_until_ns: Callable[[Sequence[TimedValue], int], int] = _now


def read_values(kind: FeedKind, source: SourceConfig, now_ns: int) -> Sequence[TimedValue]:
    """Read and parse the values of a source.

    Args:
        kind: Kind of the values.
        source: Their source.
        now_ns: UTC in ns.

    Raises:
        SourceError: The source cannot be read, or returns something else.
    """
    try:
        return kind.parse(read_output(source), now_ns)
    except ValueError as error:
        raise SourceError(outside_text(str(error))) from None


def read_output(source: SourceConfig, timeout_s: float = TIMEOUT_S) -> str:
    """Return the current output of a source, or the price that a plan names in a price list.

    Args:
        source: A file, a command, an HTTP endpoint, or a plan.
        timeout_s: Longest time for a command, an endpoint or a price list in s.

    Raises:
        SourceError: It cannot be read, takes too long, is too large, or has no such price.
    """
    if not isinstance(source, FeedPlan) or source.api is None:
        return read_source(source, timeout_s)
    if source.query is not None:
        return read_price_list(source.query, timeout_s)
    table = read_source(source, timeout_s)
    instance, region = source.instance or "", source.region or ""
    is_spot = source.plan == "spot"
    try:
        found = catalogue_prices(table, instance, region, source.currency, is_spot=is_spot)
        return f"{only_price(found, f'{instance} in {region}'):f}"
    except ValueError as error:
        name = str(source.file) if source.file is not None else "price list catalogue"
        raise SourceError(f"{name}: {outside_text(str(error))}") from None


class TimedFeed:
    """A value that a source provides over time.

    Args:
        kind: The kind of the feed.
        source: The source's configuration section.
        ledger: Stores the values, so that they survive a restart and past rows keep theirs.
        clock: The host's clocks.
        on_event: Receives the event of a source that fails or becomes stale, and of its recovery.
    """

    def __init__(
        self,
        kind: FeedKind,
        source: SourceConfig,
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        self.kind = kind
        self.source = source
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event
        self._lock = Lock()
        self._error: str | None = None
        self._backoff = RetryBackoff(RETRY_S, source.every_s, Random())  # noqa: S311 - jitter
        self._retry_ns = 0
        self._known = self._stored_values()
        # Staleness from before the restart was reported by the previous process.
        self._reported_stale = self._known.seen_ns is None or self._is_stale(self._known)

    def current(self) -> TimedValues:
        """Return the known values."""
        with self._lock:
            return self._known

    def refresh(self) -> None:
        """Read the source; if it fails the last known value stays in force."""
        now_ns = self._clock.time_ns()
        with self._lock:
            self._known = self._known.without_future(now_ns)
        try:
            news = read_values(self.kind, self.source, now_ns)
        except SourceError as error:
            self._failed(str(error))
        else:
            self._take(news, now_ns)
        self._notice_staleness()

    def retry(self) -> None:
        """Read the source again after a failure, less and less often; otherwise do nothing."""
        if self._error is not None and self._clock.monotonic_ns() >= self._retry_ns:
            self.refresh()

    def status(self) -> dict[str, Any]:
        """Return the feed's state; `value` is None before the first value."""
        now_ns = self._clock.time_ns()
        values = self.current()
        value = values.at(now_ns)
        return {
            "value": None if value is None else str(value.value),
            "since_ns": None if value is None else value.time_ns,
            "seen_ns": values.seen_ns,
            "stale": self._is_stale(values),
            "values": len(values.values),
            "last_error": self._error,
        }

    def _take(self, news: Sequence[TimedValue], now_ns: int) -> None:
        with self._lock:
            values = self._known.updated(news, self.kind.valid_until_ns(news, now_ns))
            self._known = values
        self._ledger.put_state(self.kind.state, values.to_document())
        self._backoff.succeeded()
        if self._error is not None:
            self._error = None
            title = f"{self.kind.title}: its source works again"
            self._on_event(Event("fault", "info", title, now_ns))

    def _stored_values(self) -> TimedValues:
        document = self._ledger.state(self.kind.state)
        if not isinstance(document, dict):
            return TimedValues()
        try:
            return TimedValues.from_document(document)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            logger.warning(
                "the stored values of %s are damaged and were discarded", self.kind.title
            )
            return TimedValues()

    def _is_stale(self, values: TimedValues) -> bool:
        return values.is_stale(self._clock.time_ns(), self.source.stale_after_s)

    def _failed(self, reason: str) -> None:
        is_new = self._error is None
        self._error = reason
        self._retry_ns = self._clock.monotonic_ns() + int(self._backoff.failed() * NS_PER_S)
        if not is_new:
            return
        kind = self.kind
        logger.warning("%s: %s", kind.title, reason)
        self._report(
            f"{kind.title}: its source returns no {kind.noun}",
            f"{reason}. The last known {kind.noun} stays in force; it is marked when it is stale.",
        )

    def _notice_staleness(self) -> None:
        """Report staleness once, and again only after a newer value."""
        is_stale = self._is_stale(self.current())
        if is_stale and not self._reported_stale:
            kind = self.kind
            self._report(
                f"{kind.title} is stale",
                f"no {kind.noun} newer than {self.source.stale_after_s:g} s; the last known one"
                " stays in force and is marked stale",
            )
        self._reported_stale = is_stale

    def _report(self, title: str, detail: str) -> None:
        now_ns = self._clock.time_ns()
        cause = f"{self.kind.noun} source"
        self._on_event(Event("fault", "warning", title, now_ns, detail=detail, cause=cause))
