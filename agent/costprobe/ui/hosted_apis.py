"""Services beside hosted models as JSON and as text, the same in the command and in the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from costprobe.core.money import cents, money
from costprobe.core.units import percent, significant
from costprobe.pricing.catalogue import HostedPrice
from costprobe.savings.hosted_apis import HostedCost, HostingChoice
from costprobe.ui.text import cache_words, kind_prices

HEADS: Final = (
    "hosted model",
    "in",
    "cached",
    "out",
    "a month",
    "own hosting saves",
    "break-even utilization",
    "price as of",
)
NOTE: Final = (
    "Prices in, cached and out are per million tokens; the tokens that the service's own cache answers"
    " count as cached at the hosted model, too. Quality, latency and limits of a hosted model are"
    " not compared: whether it can replace the service is yours to evaluate."
)


def caption(choice: HostingChoice) -> str:
    """Return what was measured of a service, as one line."""
    if not choice.measured_h:
        return f"{choice.name}: no tokens with a cost were counted"
    utilization = "unknown utilization"
    if choice.idle_share is not None:
        utilization = f"{percent(1 - choice.idle_share)} utilization"
    own = [
        f"{money(one.amount, choice.currency)} {one.which}{one.way}"
        for one in kind_prices(choice.per_million.get)
    ]
    tokens_in, cached = choice.tokens_in_per_month, choice.cached_tokens_per_month
    share = cached / tokens_in if tokens_in else None
    cache = cache_words(share, choice.cache_saved_per_month, choice.currency)
    return (
        f"{choice.name}: {money(choice.cost_per_month, choice.currency)} a month at {utilization}"
        f" ({', '.join(own) or 'no cost'} per million tokens), from {significant(choice.measured_h)} h"
        f"{cache and f'; {cache} a month'}"
    )


def table(choice: HostingChoice) -> list[tuple[str, ...]]:
    """Return a row for each hosted model, in the order of HEADS."""
    if not choice.measured_h:
        return []
    return [_row(choice, api) for api in choice.apis]


def remarks(choice: HostingChoice) -> Iterator[str]:
    """Yield what a reader must know of the hosted models, one line each."""
    for api in choice.apis:
        if choice.cached_tokens_per_month and api.price.per_million_tokens_cached is None:
            yield f"{api.price.model}: no price of cached tokens is known; they cost as other input"
        if api.price.doubt:
            yield f"{api.price.model}: {api.price.doubt}"
    if choice.other_currencies:
        names = ", ".join(choice.other_currencies)
        yield f"not in {choice.currency or 'a currency'}, so not compared: {names}"


def document(choice: HostingChoice) -> dict[str, Any]:
    """Return a service beside hosted models as JSON."""
    return {
        "service": choice.service,
        "served_model": choice.served_model,
        "currency": choice.currency,
        "measured_h": choice.measured_h,
        "idle_share": choice.idle_share,
        "cost_per_month": choice.cost_per_month,
        "tokens_in_per_month": choice.tokens_in_per_month,
        "cached_tokens_per_month": choice.cached_tokens_per_month,
        "tokens_out_per_month": choice.tokens_out_per_month,
        **{f"cost_per_million_tokens_{kind}": value for kind, value in choice.per_million.items()},
        "cost_cache_saved_per_month": choice.cache_saved_per_month,
        "hosted_models": [
            {
                **price_document(api.price),
                "cost_per_month": api.cost_per_month,
                "saving_per_month": api.saving_per_month,
                "break_even_share": api.break_even_share,
            }
            for api in choice.apis
        ],
        "other_currencies": list(choice.other_currencies),
    }


def price_document(price: HostedPrice) -> dict[str, Any]:
    """Return the price of a hosted model as JSON; exact numbers are text."""
    cached = price.per_million_tokens_cached
    return {
        "model": price.model,
        "cost_per_million_tokens_in": str(price.per_million_tokens_in),
        "cost_per_million_tokens_cached": None if cached is None else str(cached),
        "cost_per_million_tokens_out": str(price.per_million_tokens_out),
        "currency": price.currency,
        "as_of": price.as_of,
        "doubt": price.doubt,
        "source": price.source,
    }


def _row(choice: HostingChoice, api: HostedCost) -> tuple[str, ...]:
    price, share = api.price, api.break_even_share
    cached = price.per_million_tokens_cached
    if share is None:
        break_even = "unknown" if choice.idle_share in (None, 1) else "none, below electricity"
    else:
        break_even = "none, above 100 %" if share > 1 else f"{percent(share)}"
    return (
        price.model,
        cents(price.per_million_tokens_in, price.currency),
        "-" if cached is None else cents(cached, price.currency),
        cents(price.per_million_tokens_out, price.currency),
        money(api.cost_per_month, choice.currency),
        money(api.saving_per_month, choice.currency),
        break_even,
        price.as_of or "configured",
    )
