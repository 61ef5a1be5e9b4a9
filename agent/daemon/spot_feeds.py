"""The spot prices that the daemon knows: read from their sources, remembered, and told when stale."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from agent.clock import Clock
from agent.config_price import PlanConfig, SpotPlanConfig
from agent.daemon.accounts import Ledger
from agent.feeds.spot import SourceError, read_source
from agent.model import Event
from agent.pricing.spot import SpotPrices, Spots, parse_spot

logger = logging.getLogger(__name__)


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
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event
        self._lock = Lock()
        self._errors: dict[str, str] = {}
        self._known = {name: self._remembered(name) for name in self._plans}

    @property
    def plans(self) -> tuple[SpotPlanConfig, ...]:
        """The spot plans."""
        return tuple(self._plans.values())

    def current(self) -> Spots:
        """What is known now, by the plans' names."""
        with self._lock:
            return dict(self._known)

    def refresh(self, name: str) -> None:
        """Reads a plan's source; one that gives nothing leaves the last known price in force."""
        now_ns = self._clock.time_ns()
        try:
            news = parse_spot(read_source(self._plans[name]), now_ns)
        except (SourceError, ValueError) as error:
            self._failed(name, str(error))
            return
        with self._lock:
            known = self._known[name].with_news(news, now_ns)
            self._known[name] = known
        self._ledger.put_state(_state_name(name), known.to_document())
        if self._errors.pop(name, None) is not None:
            self._on_event(
                Event("fault", "info", f"spot price {name}: its source answers again", now_ns)
            )

    def status(self) -> dict[str, dict[str, Any]]:
        """What is known of each plan, for people."""
        now_ns = self._clock.time_ns()
        found = {}
        for name, known in self.current().items():
            price = known.at(now_ns)
            found[name] = {
                "per_hour": None if price is None else str(price.per_hour),
                "since_ns": None if price is None else price.time_ns,
                "seen_ns": known.seen_ns,
                "stale": known.is_stale(now_ns, self._plans[name].stale_after_s),
                "prices": len(known.prices),
                "last_error": self._errors.get(name),
            }
        return found

    def _remembered(self, name: str) -> SpotPrices:
        document = self._ledger.state(_state_name(name))
        if not isinstance(document, dict):
            return SpotPrices()
        try:
            return SpotPrices.from_document(document)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            logger.warning("the remembered prices of %s are damaged and begin anew", name)
            return SpotPrices()

    def _failed(self, name: str, reason: str) -> None:
        is_new = name not in self._errors
        self._errors[name] = reason
        if not is_new:
            return
        logger.warning("spot price %s: %s", name, reason)
        self._on_event(
            Event(
                kind="fault",
                severity="warning",
                title=f"spot price {name}: its source gives no price",
                time_ns=self._clock.time_ns(),
                detail=f"{reason}. The last known price stays in force until it is stale.",
                cause="price source",
            )
        )


def _state_name(name: str) -> str:
    return f"spot {name}"
