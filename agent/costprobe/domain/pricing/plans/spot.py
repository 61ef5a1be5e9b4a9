"""A device or host rented at a market price."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import Name, Pause, key
from costprobe.core.records import NS_PER_S
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.rate import Quote
from costprobe.domain.pricing.source import SourceConfig
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots


class SpotPlan(Plan, SourceConfig):
    """Rented at a price that changes over time, read from a file, a command or an HTTP endpoint."""

    plan: Literal["spot"] = Field(description="Kind of plan.", examples=["spot"])
    name: Name = Field("spot", description="Name under which the price history is stored.")
    interruptions_per_month: Annotated[float, Field(ge=0, le=100_000)] | None = Field(
        None, description="Expected interruptions, for `costprobe savings`.", examples=[3.0]
    )
    recovery_s: Pause = key(
        "recovery",
        0.0,
        description="Time until work continues after an interruption, with the repeated work.",
        examples=["10m"],
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> SpotPlan:
        if self.sources != 1:
            raise ValueError("give one of file, command and url")
        return self

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote | None:
        """Return the last known market price; None before the first."""
        prices = spots.get(self.name)
        price = None if prices is None else prices.at(time_ns)
        if prices is None or price is None:
            return None
        is_stale = prices.is_stale(time_ns, self.stale_after_s)
        since = datetime.fromtimestamp(price.time_ns // NS_PER_S, tz=UTC)
        note = f"price of {since:%Y-%m-%d %H:%M} UTC{', stale' if is_stale else ''}"
        return Quote("spot", (("rent", price.value),), note, is_stale, (f"spot price {self.name}",))
