"""Configuration of hosted models that services are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.core.config.fields import Currency, Money, Name, Section, matching
from costprobe.domain.pricing.catalogue.hosted import HostedPrice

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
                yield f'api[{index}].services: no [[service]] is named "{service}"'
