"""The price series of the configuration's plans that read a source: spot and list prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.timed_feed import FeedKind, TimedFeed
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.domain.pricing.plans.feed import FeedPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.spot_prices import Spots, parse_spot


class SpotFeeds:
    """The prices of all plans of a configuration that read a source.

    Args:
        plans: All plans.
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
        self._plans = {plan.name: plan for plan in plans if isinstance(plan, FeedPlan)}
        self._feeds = {
            name: TimedFeed(kind_of(plan), plan, ledger, clock, on_event)
            for name, plan in self._plans.items()
        }

    @property
    def plans(self) -> tuple[FeedPlan, ...]:
        """The plans whose prices are read."""
        return tuple(self._plans.values())

    def current(self) -> Spots:
        """Return the known prices, by the plans' names."""
        return {name: feed.current() for name, feed in self._feeds.items()}

    def refresh(self, name: str) -> None:
        """Read a plan's source; if it fails the last known price stays in force."""
        self._feeds[name].refresh()

    def retry(self, name: str) -> None:
        """Read a plan's source again after a failure."""
        self._feeds[name].retry()

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


def kind_of(plan: FeedPlan) -> FeedKind:
    """Return the feed kind of a plan, whose currency the source must not contradict."""
    title = f"{plan.plan} price {plan.name}"
    parse = partial(parse_spot, currency=plan.currency)
    return FeedKind(title, "price", f"{plan.plan} {plan.name}", parse)
