"""The contract of price plans: one suite for every kind, and for the example of contributors."""

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from contracts.examples.monthly import MonthlyPlan
from costprobe.core.records import NS_PER_S
from costprobe.pricing.plans import PLANS, Plan, device_rate
from costprobe.pricing.timed import TimedValue, TimedValues

T0 = 1_800_000_000 * NS_PER_S
DAY_NS = 86_400 * NS_PER_S
VALUES = TimedValues((TimedValue(T0, Decimal("0.5")),), T0)
SPOTS = {"spot": VALUES, "list": VALUES}
EXAMPLES = tomllib.loads(Path(__file__).with_name("plan_examples.toml").read_text())


def section(kind, model=None, **more):
    keys = EXAMPLES.get(kind, {})
    return (model or PLANS[kind]).model_validate({"plan": kind, **keys, **more})


def check(plan, kind):
    """Every MUST of docs/contributing/kinds.md."""
    assert isinstance(plan, Plan)
    assert get_args(type(plan).model_fields["plan"].annotation) == (kind,)
    assert plan == type(plan).model_validate(
        plan.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)
    )
    for name, field in type(plan).model_fields.items():
        assert field.description, f"{kind}.{name} has no description"
    for time_ns in (T0, T0 + 400 * DAY_NS, T0 + 4000 * DAY_NS):
        quote = plan.quote(time_ns, SPOTS)
        assert quote == plan.quote(time_ns, SPOTS), "quote is not a pure function"
        assert quote is not None
        assert quote.plan
        assert len(quote.parts) == len(quote.origins)
        for name, amount in quote.parts:
            assert isinstance(amount, Decimal), name
            assert amount >= 0, name
        assert quote.per_hour == sum(amount for _, amount in quote.parts)
        check_rate(plan, quote)


def check_rate(plan, quote):
    rate = device_rate(plan, quote, sharing=4)
    assert rate.currency == plan.currency
    assert rate.per_hour * 4 == pytest.approx(quote.per_hour)
    assert sum(amount for _, amount in rate.parts) == pytest.approx(rate.per_hour)
    assert len(rate.parts) == len(rate.origins)


def test_every_plan_fulfils_the_contract():
    assert set(EXAMPLES) == set(PLANS)
    for kind in PLANS:
        check(section(kind), kind)


def test_every_plan_accepts_the_keys_that_all_plans_share():
    for kind in PLANS:
        plan = section(kind, device="gpu0", valid_from="2026-02-01", electricity_included=True)
        assert (plan.unit, plan.electricity_included) == ("device", True)
        with pytest.raises(ValueError, match="host_overhead is a share"):
            section(kind, device="gpu0", host_overhead="0.1")


def test_example_passes_the_contract():
    plan = MonthlyPlan.model_validate({"plan": "monthly", "per_month": 730})
    check(plan, "monthly")
    assert plan.quote(T0).per_hour == 1
