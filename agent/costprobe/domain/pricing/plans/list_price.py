"""A device or host rented at its cloud's list price, which is read from the cloud."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, Name, key
from costprobe.domain.pricing.plans.feed import FeedPlan


class ListPlan(FeedPlan):
    """Rented on demand at the list price of its cloud, read from a source."""

    plan: Literal["list"] = Field(description="Kind of plan.", examples=["list"])
    name: Name = Field("list", description="Name under which the price history is stored.")
    every_s: Duration = key("every", 86_400.0, description="Time between two reads.")
    stale_after_s: Duration = key(
        "stale_after", 7 * 86_400.0, description="Age after which the last known value is stale."
    )
