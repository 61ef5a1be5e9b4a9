"""The carbon intensity series of the configuration's source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.timed_feed import FeedKind, TimedFeed
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.domain.pricing.carbon import CarbonConfig, parse_carbon, valid_until_ns
from costprobe.domain.pricing.timed import TimedValues

STATE = "carbon intensity"
KIND = FeedKind(STATE, "intensity", STATE, parse_carbon, valid_until_ns)


class CarbonFeed:
    """The carbon intensities of the configuration's source; empty without a source.

    Args:
        carbon: The configuration.
        ledger: Stores intensities.
        clock: The host's clocks.
        on_event: Receives the event of a source that fails or becomes stale, and of its recovery.
    """

    def __init__(
        self,
        carbon: CarbonConfig | None,
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        self.source = carbon if carbon is not None and carbon.sources else None
        self._feed: TimedFeed | None = None
        if self.source is not None:
            self._feed = TimedFeed(KIND, self.source, ledger, clock, on_event)

    def current(self) -> TimedValues:
        """Return the known intensities."""
        return self._feed.current() if self._feed else TimedValues()

    def refresh(self) -> None:
        """Read the source; if it fails the last known intensity stays in force."""
        if self._feed:
            self._feed.refresh()

    def retry(self) -> None:
        """Read the source again after a failure."""
        if self._feed:
            self._feed.retry()

    def status(self) -> dict[str, Any]:
        """Return the state of the series; empty without a source."""
        if self._feed is None:
            return {}
        status = self._feed.status()
        return {"g_per_kwh": status.pop("value"), "intensities": status.pop("values"), **status}
