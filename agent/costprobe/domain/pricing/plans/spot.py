"""A device or host rented at a market price."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costprobe.core.config.fields import Name, Pause, key
from costprobe.domain.pricing.plans.feed import FeedPlan


class SpotPlan(FeedPlan):
    """Rented at a price that changes over time, read from a source."""

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
