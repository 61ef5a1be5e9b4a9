"""The carbon intensity that the daemon knows: read from its source, remembered, told when stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.clock import Clock
from agent.config_carbon import CarbonConfig
from agent.daemon.accounts import Ledger
from agent.daemon.timed_feed import FeedKind, TimedFeed
from agent.model import Event
from agent.pricing.carbon import parse_carbon, vouched_ns
from agent.pricing.timed import TimedValues

STATE = "carbon intensity"
KIND = FeedKind(STATE, "intensity", STATE, parse_carbon, vouched_ns)


class CarbonFeed:
    """The series of carbon intensities of a configuration; empty where it has no source.

    Args:
        carbon: The configuration.
        ledger: Remembers intensities.
        clock: The host's clocks.
        on_event: Takes the fault of a source that gives nothing or nothing new, and its return.
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
        """What is known now."""
        return self._feed.current() if self._feed else TimedValues()

    def refresh(self) -> None:
        """Reads the source; one that gives nothing leaves the last known intensity in force."""
        if self._feed:
            self._feed.refresh()

    def status(self) -> dict[str, Any]:
        """What is known of the series, for people; empty where there is no source."""
        if self._feed is None:
            return {}
        known = self._feed.status()
        return {"g_per_kwh": known.pop("value"), "intensities": known.pop("values"), **known}
