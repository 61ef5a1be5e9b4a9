"""What tokens of services cost over a span, idle time included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from costprobe.core.row_columns import RowColumns, numbers_of
from costprobe.domain.costing.serving.serving_change import ratio_of_columns


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Measured cost of tokens.

    Attributes:
        service: Name of the service.
        served_model: Name of the model; empty for a service of one model.
        currency: ISO 4217 code.
        per_million_tokens_in: Currency per million input tokens, cached ones included; None if
            none were counted.
        per_million_tokens_out: Currency per million output tokens; None if none were counted.
        coverage: Share of the span that windows with a cost cover.
    """

    service: str
    served_model: str
    currency: str
    per_million_tokens_in: float | None
    per_million_tokens_out: float | None
    coverage: float


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
            ratio_of_columns(group, "cost_per_million_tokens_in"),
            ratio_of_columns(group, "cost_per_million_tokens_out"),
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
