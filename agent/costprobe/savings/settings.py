"""Configuration of workloads ([[workload]]) and of hosted models to compare with ([[api]]).

A workload is the model of a service or a device, or the expected load of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.core.config.fields import (
    Currency,
    Money,
    Name,
    Section,
    WeeklyHoursConfig,
    check_each_applies,
    matching,
)
from costprobe.core.periods import HOURS_A_DAY, HOURS_A_WEEK
from costprobe.pricing.catalogue import HostedPrice

PerSecond = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_IS_MODEL = matching(
    r"[A-Za-z0-9][A-Za-z0-9_.:/@ -]*", "write letters, digits, blanks and _ . : / @ -"
)


class ApiConfig(Section):
    """A hosted model, whose price `costprobe compare` and `report` set beside services."""

    model: Annotated[str, Field(max_length=100), _IS_MODEL] = Field(
        description=(
            "Name of the hosted model; one of `costprobe price list --apis` has its list price there."
        ),
        examples=["openai/gpt-5-mini"],
    )
    services: tuple[Name, ...] = Field(
        (),
        max_length=64,
        description="Services that it could replace; by default all.",
        examples=[["chat"]],
    )
    per_million_tokens_in: Money | None = Field(
        None, description="Price of a million input tokens.", examples=[Decimal("0.25")]
    )
    per_million_tokens_cached: Money | None = Field(
        None,
        description="Price of a million input tokens from the cache; default: as other input.",
        examples=[Decimal("0.025")],
    )
    per_million_tokens_out: Money | None = Field(
        None, description="Price of a million output tokens.", examples=[Decimal(2)]
    )
    currency: Currency = Field("USD", description="ISO 4217 code.", examples=["USD"])

    @model_validator(mode="after")
    def _has_both_prices(self) -> ApiConfig:
        priced = (self.per_million_tokens_in, self.per_million_tokens_out)
        if None in priced and (
            priced != (None, None) or self.per_million_tokens_cached is not None
        ):
            raise ValueError(
                "give both per_million_tokens_in and per_million_tokens_out;"
                " per_million_tokens_cached is in addition to them"
            )
        if None in priced and self.currency != "USD":
            raise ValueError("list prices are in USD; give prices, or remove currency")
        return self

    def price(self, listed: Mapping[str, HostedPrice]) -> HostedPrice | None:
        """Return the configured price, otherwise the listed one; None if there is none.

        Args:
            listed: List prices by model.
        """
        per_in, per_out = self.per_million_tokens_in, self.per_million_tokens_out
        if per_in is None or per_out is None:
            return listed.get(self.model)
        cached = self.per_million_tokens_cached
        return HostedPrice(self.model, per_in, cached, per_out, self.currency)


def api_problems(
    apis: Sequence[ApiConfig], services: Sequence[str], listed: Mapping[str, HostedPrice]
) -> Iterator[str]:
    """Check that hosted models have a price and name services that exist.

    Args:
        apis: The hosted models.
        services: Names of the services.
        listed: List prices by model.
    """
    for index, api in enumerate(apis):
        # One with errors may lack one of its prices.
        is_unpriced = api.per_million_tokens_in is None and api.per_million_tokens_out is None
        if is_unpriced and api.model not in listed:
            yield (
                f"api[{index}].model: no list price of {api.model} is known; give"
                " per_million_tokens_in and per_million_tokens_out, or write a name of"
                " `costprobe price list --apis`"
            )
        for service in api.services:
            if service not in services:
                yield f'api[{index}].services: no [[service]] with a cost per token is named "{service}"'


class WorkloadHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own load; they may end on the next day."""

    per_s: PerSecond = Field(description="Inferences per second in these hours.", examples=[120.0])


class WorkloadConfig(Section):
    """The model of a service or a device, or the expected load of a model, for `costprobe savings`."""

    probe: Name = Field(description="Probe that measures the model.", examples=["ranker"])
    service: Name | None = Field(
        None, description="Service whose model the probe measures.", examples=["chat"]
    )
    as_device: Name | None = Field(
        None,
        description="Device whose utilization is the load of the model.",
        examples=["gpu0"],
    )
    per_s: PerSecond | None = Field(
        None,
        description="Expected inferences per second; with `hours`, in all other hours.",
        examples=[12.5],
    )
    per_s_by_hour: tuple[PerSecond, ...] = Field(
        (),
        max_length=HOURS_A_WEEK,
        description=(
            "Expected inferences per second in each hour of the day (24) or of the week (168, from"
            " Monday 00:00), in the same time zone."
        ),
        examples=[[2.0] * 8 + [40.0] * 12 + [2.0] * 4],
    )
    hours: tuple[WorkloadHoursConfig, ...] = Field(
        (),
        max_length=200,
        description=(
            "Hours with their own load, in the time zone of `[electricity]`, else the host's;"
            " the first match applies."
        ),
        examples=[[{"days": ["mon", "fri"], "start": "08:00", "end": "18:00", "per_s": 120.0}]],
    )

    @model_validator(mode="after")
    def _one_purpose(self) -> WorkloadConfig:
        purposes = (self.service, self.as_device, self.per_s, self.per_s_by_hour or None)
        if sum(purpose is not None for purpose in purposes) != 1:
            raise ValueError("give one of service, as_device, per_s and per_s_by_hour")
        if len(self.per_s_by_hour) not in (0, HOURS_A_DAY, HOURS_A_WEEK):
            given = len(self.per_s_by_hour)
            raise ValueError(f"per_s_by_hour has {given} values; write 24 or 168")
        if self.hours and self.per_s is None:
            raise ValueError("hours need per_s for the other hours; add it")
        check_each_applies(self.hours)
        return self

    @property
    def subject(self) -> tuple[str, str]:
        """What the load is of: a service, a device, or a probe's model; kind and name."""
        if self.service is not None:
            return "service", self.service
        return ("probe", self.probe) if self.as_device is None else ("device", self.as_device)

    @property
    def is_expected(self) -> bool:
        """Whether it states a load."""
        return self.per_s is not None or bool(self.per_s_by_hour)

    def profile(self) -> tuple[float, ...]:
        """Return the inferences per second by hour of the week, 0 = Monday 00:00."""
        if self.per_s_by_hour:
            return self.per_s_by_hour * (HOURS_A_WEEK // len(self.per_s_by_hour))
        minutes = [(hours.minutes(), hours.per_s) for hours in self.hours]
        return tuple(
            sum(
                _at(minute, minutes, self.per_s or 0.0)
                for minute in range(hour * 60, hour * 60 + 60)
            )
            / 60
            for hour in range(HOURS_A_WEEK)
        )


def _at(minute: int, hours: Sequence[tuple[set[int], float]], otherwise: float) -> float:
    return next((per_s for minutes, per_s in hours if minute in minutes), otherwise)
