"""Measured costs of tokens as price files of LLM gateways and tracing programs.

Sources: litellm's model_prices_and_context_window.json and `litellm.register_model`; Langfuse's
`POST /api/public/models`; OpenLIT's pricing.json. All three reckon in US dollars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.domain.costing.serving.token_prices import TokenPrice

DOLLAR: Final = "USD"
_MILLION: Final = 1e6
_THOUSAND: Final = 1e3
# Digits of an amount; more would be rounding errors of the conversion.
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices of a model's tokens.

    Attributes:
        name: Name by which clients call the model.
        usd_per_million_tokens_in: US dollars per million input tokens.
        usd_per_million_tokens_out: US dollars per million output tokens; 0 if it writes none.
        origin: Where the prices come from: service, time, coverage.
    """

    name: str
    usd_per_million_tokens_in: float
    usd_per_million_tokens_out: float
    origin: Mapping[str, str | float]


def model_prices(
    found: Iterable[TokenPrice],
    usd: float | None,
    models: Mapping[str, str],
    span: Mapping[str, str],
) -> list[ModelPrice]:
    """Return measured costs of tokens as prices of models.

    Args:
        found: The costs; those without a cost of input tokens are left out.
        usd: US dollars for one unit of the services' currency; None if unknown.
        models: Name of the model of services whose engine reports none.
        span: `since` and `until` in ISO 8601.

    Raises:
        ValueError: A service has another currency and there is no rate, or two services serve one
            model: a gateway would take either price.
    """
    prices = [
        _model_price(price, usd, models, span)
        for price in found
        if price.per_million_tokens_in is not None
    ]
    names = [price.name for price in prices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{', '.join(twice)}: several services or currencies have this model; choose a shorter"
            " time, or give the services different `model` names"
        )
    return prices


def _model_price(
    price: TokenPrice, usd: float | None, models: Mapping[str, str], span: Mapping[str, str]
) -> ModelPrice:
    if price.currency != DOLLAR and usd is None:
        raise ValueError(
            f"service {price.service} has prices in {price.currency or 'no currency'}, and the programs"
            " reckon in US dollars; give the rate: --usd 1.08, or usd = 1.08 in [[price_file]]"
        )
    rate = 1.0 if price.currency == DOLLAR else usd or 1.0
    origin: dict[str, str | float] = {
        "source": "costprobe",
        "service": price.service,
        **span,
        "coverage": round(price.coverage, 4),
        "currency": price.currency,
        "usd_per_unit": rate,
    }
    return ModelPrice(
        price.served_model or models.get(price.service, price.service),
        (price.per_million_tokens_in or 0.0) * rate,
        (price.per_million_tokens_out or 0.0) * rate,
        origin,
    )


def _litellm(prices: Sequence[ModelPrice], provider: str, until: str) -> str:
    del until
    return _document(
        {
            f"{provider}/{price.name}": {
                "litellm_provider": provider,
                "mode": "chat",
                "input_cost_per_token": _per(price.usd_per_million_tokens_in, 1),
                "output_cost_per_token": _per(price.usd_per_million_tokens_out, 1),
                # The measured mean includes cached tokens; without these litellm takes 0 for them.
                "cache_read_input_token_cost": _per(price.usd_per_million_tokens_in, 1),
                "cache_creation_input_token_cost": _per(price.usd_per_million_tokens_in, 1),
                "metadata": dict(price.origin),
            }
            for price in prices
        }
    )


def _langfuse(prices: Sequence[ModelPrice], provider: str, until: str) -> str:
    """Return one line for each request body."""
    del provider
    return "\n".join(
        json.dumps(
            {
                "modelName": price.name,
                "matchPattern": f"(?i)^{re.escape(price.name)}$",
                "startDate": until,
                "unit": "TOKENS",
                "inputPrice": _per(price.usd_per_million_tokens_in, 1),
                "outputPrice": _per(price.usd_per_million_tokens_out, 1),
            }
        )
        for price in prices
    )


def _openlit(prices: Sequence[ModelPrice], provider: str, until: str) -> str:
    del provider, until
    return _document(
        {
            "chat": {
                price.name: {
                    "promptPrice": _per(price.usd_per_million_tokens_in, _THOUSAND),
                    "completionPrice": _per(price.usd_per_million_tokens_out, _THOUSAND),
                }
                for price in prices
            },
            "metadata": {price.name: dict(price.origin) for price in prices},
        }
    )


def _per(per_million: float, tokens: float) -> float:
    return float(f"{per_million * tokens / _MILLION:.{_DIGITS}g}")


def _document(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2)


# Writes prices of a provider's models that apply from a date in ISO 8601.
PRICE_FILES: Final[Mapping[str, Callable[[Sequence[ModelPrice], str, str], str]]] = {
    "litellm": _litellm,
    "langfuse": _langfuse,
    "openlit": _openlit,
}
