"""One source of a figure that moves: read, remembered, and told of when it gives nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from agent.clock import Clock
from agent.config_source import SourceConfig
from agent.daemon.accounts import Ledger
from agent.feeds.source import SourceError, read_source
from agent.model import Event
from agent.pricing.timed import TimedValue, TimedValues

logger = logging.getLogger(__name__)


def _now(news: Sequence[TimedValue], now_ns: int) -> int:
    del news
    return now_ns


@dataclass(frozen=True, slots=True)
class FeedKind:
    """What a feed is of.

    Attributes:
        title: What it is called in events: "spot price NAME".
        noun: What its source gives: "price".
        state: Name of the document that it is remembered by.
        parse: Reads what the source gave at a UTC ns.
        vouched_ns: For which UTC ns an answer of now vouches.
    """

    title: str
    noun: str
    state: str
    parse: Callable[[str, int], list[TimedValue]]
    vouched_ns: Callable[[Sequence[TimedValue], int], int] = _now


class TimedFeed:
    """A figure that a source gives over time.

    Args:
        kind: What it is of.
        source: Where it comes from.
        ledger: Remembers it, so that a start knows the last figure and the past keeps its own.
        clock: The host's clocks.
        on_event: Takes the fault of a source that gives nothing or nothing new, and its return.
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
        self._known = self._remembered()
        # What was stale when the last process stopped was told by it.
        self._told_stale = self._known.seen_ns is None or self._is_stale(self._known)

    def current(self) -> TimedValues:
        """What is known now."""
        with self._lock:
            return self._known

    def refresh(self) -> None:
        """Reads the source; one that gives nothing leaves the last known figure in force."""
        now_ns = self._clock.time_ns()
        with self._lock:
            self._known = self._known.set_back(now_ns)
        try:
            news = self.kind.parse(read_source(self.source), now_ns)
        except (SourceError, ValueError) as error:
            self._failed(str(error))
        else:
            self._take(news, now_ns)
        self._notice_staleness()

    def status(self) -> dict[str, Any]:
        """What is known, for people: `value` is None before the first figure."""
        now_ns = self._clock.time_ns()
        known = self.current()
        found = known.at(now_ns)
        return {
            "value": None if found is None else str(found.value),
            "since_ns": None if found is None else found.time_ns,
            "seen_ns": known.seen_ns,
            "stale": self._is_stale(known),
            "values": len(known.values),
            "last_error": self._error,
        }

    def _take(self, news: Sequence[TimedValue], now_ns: int) -> None:
        with self._lock:
            known = self._known.with_news(news, self.kind.vouched_ns(news, now_ns))
            self._known = known
        self._ledger.put_state(self.kind.state, known.to_document())
        if self._error is not None:
            self._error = None
            title = f"{self.kind.title}: its source answers again"
            self._on_event(Event("fault", "info", title, now_ns))

    def _remembered(self) -> TimedValues:
        document = self._ledger.state(self.kind.state)
        if not isinstance(document, dict):
            return TimedValues()
        try:
            return TimedValues.from_document(document)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            logger.warning("what is remembered of %s is damaged and begins anew", self.kind.title)
            return TimedValues()

    def _is_stale(self, known: TimedValues) -> bool:
        return known.is_stale(self._clock.time_ns(), self.source.stale_after_s)

    def _failed(self, reason: str) -> None:
        is_new = self._error is None
        self._error = reason
        if not is_new:
            return
        kind = self.kind
        logger.warning("%s: %s", kind.title, reason)
        self._tell(
            f"{kind.title}: its source gives no {kind.noun}",
            f"{reason}. The last known {kind.noun} stays in force; once stale it is marked so.",
        )

    def _notice_staleness(self) -> None:
        """Tells once that the last known figure is old; again only after there was a newer one."""
        is_stale = self._is_stale(self.current())
        if is_stale and not self._told_stale:
            kind = self.kind
            self._tell(
                f"{kind.title} is stale",
                f"no {kind.noun} newer than {self.source.stale_after_s:g} s; the last known one"
                " stays in force and is marked stale",
            )
        self._told_stale = is_stale

    def _tell(self, title: str, detail: str) -> None:
        now_ns = self._clock.time_ns()
        cause = f"{self.kind.noun} source"
        self._on_event(Event("fault", "warning", title, now_ns, detail=detail, cause=cause))
