"""Measured token costs, idle time included, as price files of LLM gateways.

Sources of the formats: litellm's model_prices_and_context_window.json and
`litellm.register_model`; Langfuse's `POST /api/public/models`; OpenLIT's pricing.json. All three
reckon in US dollars. The daemon writes the files once a day.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from costprobe.adapters.host.files import replace_file
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock, JobError
from costprobe.core.columns import RowColumns, numbers_of
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SERVICE_FIELDS
from costprobe.unit_costs.change import ratio_of_columns
from costprobe.unit_costs.settings import PriceFileConfig

logger = logging.getLogger(__name__)

DOLLAR: Final = "USD"
_MILLION: Final = 1e6
_THOUSAND: Final = 1e3
# Digits of an amount; more would be rounding errors of the conversion.
_DIGITS: Final = 12
EVERY_S: Final = 86_400.0
_KINDS: Final = ("in", "fresh", "cached", "out")
# Names of cached tokens in Langfuse: of OpenAI's `usage`, of OpenTelemetry and LangChain, of LiteLLM.
_LANGFUSE_CACHED: Final = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens")
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Measured cost of tokens.

    Attributes:
        service: Name of the service.
        served_model: Name of the model; empty for a service of one model.
        currency: ISO 4217 code.
        per_million: Currency per million tokens by kind, as of `prices_per_million`.
        coverage: Share of the span that windows with a cost cover.
    """

    service: str
    served_model: str
    currency: str
    per_million: Mapping[str, float | None]
    coverage: float


def prices_per_million(parts: Sequence[RowColumns]) -> dict[str, float | None]:
    """Return the cost of a million tokens by kind; None of a kind of which none were counted.

    The kinds are "in" (all input), of it "fresh" (computed) and "cached" (answered by a cache), and "out".

    Args:
        parts: Rows of `cost` of one service or model, in one currency.
    """
    return {kind: ratio_of_columns(parts, f"cost_per_million_tokens_{kind}") for kind in _KINDS}


def token_prices(parts: Iterable[RowColumns], span_s: float) -> list[TokenPrice]:
    """Return the cost of tokens of each service, or of each of its models if there are several.

    Args:
        parts: Rows of `cost` on the serving basis, of the span.
        span_s: Length of the span in seconds.
    """
    return [
        TokenPrice(
            service,
            model,
            currency,
            prices_per_million(group),
            min(1.0, sum(numbers_of(group, "window_s")) / span_s),
        )
        for (service, model, currency), group in service_groups(parts).items()
    ]


def service_groups(parts: Iterable[RowColumns]) -> dict[tuple[str, str, str], list[RowColumns]]:
    """Return rows by service, model and currency; of a service with several models only theirs.

    Args:
        parts: Rows of `cost` on the serving basis.
    """
    groups: dict[tuple[str, str, str], list[RowColumns]] = defaultdict(list)
    for part in parts:
        if not part.times_ns:
            continue
        tags = part.tags
        key = (tags.get("service", ""), tags.get("served_model", ""), tags.get("currency", ""))
        groups[key].append(part)
    several = {service for service, model, _ in groups if model}
    return {
        key: group
        for key, group in sorted(groups.items())
        # The row of the whole service is not that of a model.
        if key[1] or key[0] not in several
    }


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices of a model's tokens.

    Attributes:
        name: Name by which clients call the model.
        usd_per_million_tokens_in: US dollars per million input tokens that were computed.
        usd_per_million_tokens_cached: US dollars per million that a cache answered, 0 if no weight of
            theirs was measured; None if none were counted.
        usd_per_million_tokens_out: US dollars per million output tokens; 0 if it writes none.
        origin: Where the prices come from: service, time, coverage; with a price of cached tokens the
            mean of all input.
    """

    name: str
    usd_per_million_tokens_in: float
    usd_per_million_tokens_cached: float | None
    usd_per_million_tokens_out: float
    origin: Mapping[str, str | float]

    @property
    def usd_per_million_tokens_hit(self) -> float:
        """US dollars per million input tokens that a client reports as cached."""
        cached = self.usd_per_million_tokens_cached
        return self.usd_per_million_tokens_in if cached is None else cached


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
        if price.per_million["in"] is not None
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
    mean, fresh, cached, out = (price.per_million[kind] for kind in _KINDS)
    mean = mean or 0.0
    if cached is not None:
        # For callers whose server does not report cached tokens.
        origin["usd_per_million_tokens_in"] = float(f"{mean * rate:.{_DIGITS}g}")
    if cached == 0:
        origin["cached_tokens"] = "price 0: no weight measured, see costprobe calibrate"
    return ModelPrice(
        price.served_model or models.get(price.service, price.service),
        (mean if fresh is None else fresh) * rate,
        None if cached is None else cached * rate,
        (out or 0.0) * rate,
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
                "cache_read_input_token_cost": _per(price.usd_per_million_tokens_hit, 1),
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
                "pricingTiers": [
                    {
                        "name": "Standard",
                        "isDefault": True,
                        "priority": 0,
                        "conditions": [],
                        "prices": {
                            "input": _per(price.usd_per_million_tokens_in, 1),
                            **dict.fromkeys(
                                _LANGFUSE_CACHED, _per(price.usd_per_million_tokens_hit, 1)
                            ),
                            "output": _per(price.usd_per_million_tokens_out, 1),
                        },
                    }
                ],
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
                    "cacheReadPrice": _per(price.usd_per_million_tokens_hit, _THOUSAND),
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


class PriceFile:
    """A price file of a gateway.

    Args:
        settings: The configuration section.
        models: Name of the model of services whose engine reports none, by service.
        store_path: The store that costs are read from.
        clock: The host's clocks.
    """

    def __init__(
        self, settings: PriceFileConfig, models: Mapping[str, str], store_path: Path, clock: Clock
    ) -> None:
        self.name = f"price file {settings.file}"
        self._settings = settings
        self._models = models
        self._store_path = store_path
        self._clock = clock

    def write(self) -> None:
        """Replace the file in one step; without a cost of tokens the file stays as it is.

        Raises:
            JobError: The prices cannot be stated in US dollars, or the file cannot be written.
        """
        settings, until_ns = self._settings, self._clock.time_ns()
        since_ns = until_ns - int(settings.window_s * NS_PER_S)
        with closing(StoreReader.open(self._store_path)) as reader:
            tags = {"basis": "serving"}
            rows = reader.columns("cost", since_ns, until_ns, tags, fields=SERVICE_FIELDS)
            found = token_prices(rows, settings.window_s)
        until = iso(until_ns)
        span = {"since": iso(since_ns), "until": until}
        try:
            prices = model_prices(found, settings.usd, self._models, span)
            if not prices:
                logger.info("%s: no tokens with a cost; nothing is written", self.name)
                return
            text = PRICE_FILES[settings.program](prices, settings.provider, until)
            _check_folder(settings.file.parent)
            replace_file(settings.file, f"{text}\n".encode(), int(settings.mode, 8))
            # Whatever the umask is.
            settings.file.chmod(int(settings.mode, 8))
        except OSError as error:
            raise JobError(f"cannot be written ({error.strerror})") from error
        except ValueError as error:
            raise JobError(str(error)) from error


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which another user could replace the file.

    Raises:
        OSError: It is absent, another user's, or others may write in it.
    """
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        words = "its folder belongs to another user, or others may write in it"
        raise OSError(errno.EPERM, words, str(folder))
