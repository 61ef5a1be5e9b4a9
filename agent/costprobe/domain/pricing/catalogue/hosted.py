"""What hosted models cost per million tokens, as the catalogue lists them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from costprobe.domain.pricing.catalogue.offer import currency_of
from costprobe.domain.pricing.catalogue.table import lines_of, rows_of

HOSTED_COLUMNS = (
    "model",
    "per_million_tokens_in",
    "per_million_tokens_cached",
    "per_million_tokens_out",
    "currency",
    "as_of",
    "doubt",
    "source",
)
# The dearest model of 2026 costs 600 USD per million output tokens.
_LARGEST = Decimal(10_000)


@dataclass(frozen=True, slots=True)
class HostedPrice:
    """List price of a hosted model.

    Attributes:
        model: Provider and model: "openai/gpt-5-mini".
        per_million_tokens_in: Currency per million input tokens.
        per_million_tokens_cached: Of those, the ones read from the provider's cache; None if they
            cost as much as others.
        per_million_tokens_out: Currency per million output tokens.
        currency: ISO 4217 code.
        as_of: Day or month of the price; empty for one that the operator configured.
        doubt: Why it may not apply; empty if nothing is known.
        source: Where it was read.
    """

    model: str
    per_million_tokens_in: Decimal
    per_million_tokens_cached: Decimal | None
    per_million_tokens_out: Decimal
    currency: str
    as_of: str = ""
    doubt: str = ""
    source: str = "configuration"


def parse_hosted(text: str) -> dict[str, HostedPrice]:
    """Parse a table of hosted models.

    Returns:
        The prices by model.

    Raises:
        ValueError: Another schema, a value out of range, or a model twice; the message states the
            line.
    """
    prices: dict[str, HostedPrice] = {}
    for row in rows_of(lines_of(text), HOSTED_COLUMNS):
        model = row.text("model", required=True)
        if model in prices:
            raise row.error("model", "occurs twice; keep one row")
        per_in, cached, per_out = (
            row.number(column, Decimal(0), _LARGEST) for column in HOSTED_COLUMNS[1:4]
        )
        if per_in is None or per_out is None:
            raise row.error("per_million_tokens_in", "a row needs a price of both kinds of tokens")
        if cached is not None and cached > per_in:
            raise row.error("per_million_tokens_cached", "is more than that of other input")
        prices[model] = HostedPrice(
            model,
            per_in,
            cached,
            per_out,
            currency_of(row),
            row.month("as_of"),
            row.text("doubt"),
            row.text("source", required=True),
        )
    return prices
