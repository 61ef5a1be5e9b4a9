"""The kinds of price plan: a new kind is a file in `plans/` and a line in PLANS."""

from __future__ import annotations

from costprobe.domain.pricing.plans.list_price import ListPlan
from costprobe.domain.pricing.plans.on_demand import OnDemandPlan
from costprobe.domain.pricing.plans.owned import OwnedPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.plans.reserved import ReservedPlan
from costprobe.domain.pricing.plans.spot import SpotPlan

PLANS: dict[str, type[Plan]] = {
    "on_demand": OnDemandPlan,
    "reserved": ReservedPlan,
    "spot": SpotPlan,
    "list": ListPlan,
    "owned": OwnedPlan,
}
