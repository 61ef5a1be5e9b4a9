"""Measured costs of tokens as price files of LLM gateways and tracing programs.

Sources: litellm's model_prices_and_context_window.json and `litellm.register_model`; Langfuse's
`POST /api/public/models`; OpenLIT's pricing.json. All three reckon in US dollars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
