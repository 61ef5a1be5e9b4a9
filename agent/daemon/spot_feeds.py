"""The spot prices that the daemon knows: read from their sources, remembered, and told when stale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent.clock import Clock
from agent.config_price import PlanConfig, SpotPlanConfig
from agent.daemon.accounts import Ledger
from agent.daemon.timed_feed import FeedKind, TimedFeed
from agent.model import Event
from agent.pricing.spot import Spots, parse_spot


class SpotFeeds:
    """The prices of all spot plans of a configuration.

    Args:
        plans: All plans; those of spot are followed.
        ledger: Remembers prices, so that a start knows the last ones and the past keeps its own.
        clock: The host's clocks.
        on_event: Takes the fault of a source that gives nothing, and its return.
    """

    def __init__(
        self,
        plans: Sequence[PlanConfig],
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        self._plans = {plan.name: plan for plan in plans if isinstance(plan, SpotPlanConfig)}
        self._feeds = {
            name: TimedFeed(kind_of(name), plan, ledger, clock, on_event)
            for name, plan in self._plans.items()
        }

    @property
    def plans(self) -> tuple[SpotPlanConfig, ...]:
        """The spot plans."""
        return tuple(self._plans.values())

    def current(self) -> Spots:
        """What is known now, by the plans' names."""
        return {name: feed.current() for name, feed in self._feeds.items()}

    def refresh(self, name: str) -> None:
        """Reads a plan's source; one that gives nothing leaves the last known price in force."""
        self._feeds[name].refresh()

    def status(self) -> dict[str, dict[str, Any]]:
        """What is known of each plan, for people."""
        found = {}
        for name, feed in self._feeds.items():
            known = feed.status()
            found[name] = {"per_hour": known.pop("value"), "prices": known.pop("values"), **known}
        return found


def kind_of(name: str) -> FeedKind:
    """What the feed of a spot plan is of.

    Args:
        name: Name of the plan.
    """
    return FeedKind(f"spot price {name}", "price", f"spot {name}", parse_spot)
