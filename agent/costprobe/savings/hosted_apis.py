"""Self-host or API: what the tokens of services would cost at hosted models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from costprobe.core.columns import RowColumns, numbers_of
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.pricing.catalogue import HostedPrice
from costprobe.savings.settings import ApiConfig
from costprobe.savings.supply import break_even_share
from costprobe.unit_costs.change import ratio_of_columns
from costprobe.unit_costs.price_files import prices_per_million, service_groups

_MILLION: Final = 1_000_000
_SUMMED: Final = (
    "window_s",
    "cost_total",
    "cost_total_energy",
    "tokens_in",
    "cached_tokens",
    "tokens_out",
    "cost_cache_saved",
)


@dataclass(frozen=True, slots=True)
class HostedCost:
    """A hosted model for the tokens of a service.

    Attributes:
        price: Its price.
        cost_per_month: Currency for the service's tokens of a month.
        saving_per_month: That less the service's own cost: what hosting it oneself saves; negative
            if the hosted model is cheaper.
        break_even_share: Utilization from which the service is cheaper, with today's tokens
            per busy hour; above 1 if the hosted model is cheaper at every utilization. None if the
            utilization is unknown, or the hosted model costs less than the service's electricity.
    """

    price: HostedPrice
    cost_per_month: float
    saving_per_month: float
    break_even_share: float | None


@dataclass(frozen=True, slots=True)
class HostingChoice:
    """The measured cost of a service, or of one of its models, beside hosted models.

    Attributes:
        service: Name of the service.
        served_model: Name of the model; empty for a service of one model.
        currency: ISO 4217 code; hosted models in others are left out.
        measured_h: Hours with a cost and counted tokens; 0 if there are none.
        idle_share: Share of the cost that paid for idle time; None if unknown. The rest is the
            utilization.
        cost_per_month: Currency for the service in a month of such hours.
        tokens_in_per_month, cached_tokens_per_month, tokens_out_per_month: Its tokens; cached ones
            are part of the input.
        per_million: Measured currency per million tokens by kind, as of `prices_per_million`.
        cache_saved_per_month: Currency that the service's own cache saves.
        apis: The hosted models, the cheapest first.
        other_currencies: Hosted models whose price is in another currency.
    """

    service: str
    served_model: str
    currency: str
    measured_h: float
    idle_share: float | None
    cost_per_month: float
    tokens_in_per_month: float
    cached_tokens_per_month: float
    tokens_out_per_month: float
    per_million: Mapping[str, float | None]
    cache_saved_per_month: float
    apis: Sequence[HostedCost]
    other_currencies: Sequence[str]

    @property
    def name(self) -> str:
        """Display name."""
        return f"{self.service}/{self.served_model}" if self.served_model else self.service


def hosting_choices(
    parts: Iterable[RowColumns], apis: Sequence[ApiConfig], listed: Mapping[str, HostedPrice]
) -> list[HostingChoice]:
    """Set hosted models beside the measured cost of services.

    A month has as many tokens as the measured windows in 730 h. The cost of a service does not depend
    on its utilization, except for electricity that is paid separately, which follows the tokens.

    Args:
        parts: Rows of `cost`; those of the probe basis are ignored.
        apis: The configured hosted models.
        listed: List prices by model.

    Returns:
        One for each service, or each of its models, that a hosted model could replace.
    """
    if not apis:
        return []
    served = [part for part in parts if part.tags.get("basis") == "serving"]
    choices = []
    for (service, model, currency), group in service_groups(served).items():
        prices = [
            price
            for api in apis
            if not api.services or service in api.services
            if (price := api.price(listed)) is not None
        ]
        if prices:
            choices.append(_choice(service, model, currency, group, prices))
    return choices


def _choice(
    service: str,
    model: str,
    currency: str,
    group: Sequence[RowColumns],
    prices: Sequence[HostedPrice],
) -> HostingChoice:
    counted = [part.where(_has_tokens(part)) for part in group]
    sums = {name: math.fsum(numbers_of(counted, name)) for name in _SUMMED}
    measured_h = sums["window_s"] / HOUR_S
    monthly = MONTH_H / measured_h if measured_h else 0.0
    idle_share = ratio_of_columns(counted, "idle_share")
    cost, energy = (sums[name] * monthly for name in ("cost_total", "cost_total_energy"))
    tokens_in, cached, tokens_out, saved = (sums[name] * monthly for name in _SUMMED[3:])
    # Some engines count a hit again with each retry to schedule a request.
    cached = min(cached, tokens_in)
    apis = []
    for price in prices:
        if price.currency != currency:
            continue
        hosted = _hosted_cost(price, tokens_in, cached, tokens_out)
        apis.append(
            HostedCost(price, hosted, hosted - cost, _break_even(cost, energy, hosted, idle_share))
        )
    return HostingChoice(
        service,
        model,
        currency,
        measured_h,
        idle_share,
        cost,
        tokens_in,
        cached,
        tokens_out,
        prices_per_million(counted),
        saved,
        sorted(apis, key=lambda api: api.cost_per_month),
        [price.model for price in prices if price.currency != currency],
    )


def _hosted_cost(price: HostedPrice, tokens_in: float, cached: float, tokens_out: float) -> float:
    per_cached = price.per_million_tokens_cached
    if per_cached is None:
        per_cached = price.per_million_tokens_in
    return (
        (tokens_in - cached) * float(price.per_million_tokens_in)
        + cached * float(per_cached)
        + tokens_out * float(price.per_million_tokens_out)
    ) / _MILLION


def _break_even(
    cost: float, energy: float, hosted: float, idle_share: float | None
) -> float | None:
    """Return the utilization at which both cost the same; amounts of the same time at today's."""
    utilization = 1 - (1 if idle_share is None else idle_share)
    if not utilization or not hosted:
        return None
    # The hosted model is the supply that is paid for in hours of use: at full utilization it costs
    # today's amount / today's utilization.
    share = break_even_share(
        Decimal(cost - energy), Decimal(hosted / utilization), Decimal(energy / utilization)
    )
    return None if share is None else float(share)


def _has_tokens(part: RowColumns) -> list[bool]:
    tokens = zip(part.column("tokens_in"), part.column("tokens_out"), strict=True)
    return [tokens_in is not None or tokens_out is not None for tokens_in, tokens_out in tokens]
