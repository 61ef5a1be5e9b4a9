"""The price series of the configuration's spot plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.timed_feed import FeedKind, TimedFeed
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.plans.spot import SpotPlan
from costprobe.domain.pricing.spot_prices import Spots, parse_spot


class SpotFeeds:
    """The prices of all spot plans of a configuration.

    Args:
        plans: All plans; the spot plans are read.
        ledger: Stores prices, so that they survive a restart and past rows keep their price.
        clock: The host's clocks.
        on_event: Receives the event of a source that fails or becomes stale, and of its recovery.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        self._plans = {plan.name: plan for plan in plans if isinstance(plan, SpotPlan)}
        self._feeds = {
            name: TimedFeed(kind_of(name, plan.currency), plan, ledger, clock, on_event)
            for name, plan in self._plans.items()
        }

    @property
    def plans(self) -> tuple[SpotPlan, ...]:
        """The spot plans."""
        return tuple(self._plans.values())

    def current(self) -> Spots:
        """Return the known prices, by the plans' names."""
        return {name: feed.current() for name, feed in self._feeds.items()}

    def refresh(self, name: str) -> None:
        """Read a plan's source; if it fails the last known price stays in force."""
        self._feeds[name].refresh()

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the state of each plan's series."""
        statuses = {}
        for name, feed in self._feeds.items():
            status = feed.status()
            statuses[name] = {
                "price_per_h": status.pop("value"),
                "currency": self._plans[name].currency,
                "prices": status.pop("values"),
                **status,
            }
        return statuses


def kind_of(name: str, currency: str | None = None) -> FeedKind:
    """Return the feed kind of a spot plan.

    Args:
        name: Name of the plan.
        currency: Its currency, which the source must not contradict.
    """
    return FeedKind(
        f"spot price {name}", "price", f"spot {name}", partial(parse_spot, currency=currency)
    )
