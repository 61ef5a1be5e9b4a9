"""What tokens of services cost over a span, idle time included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from costprobe.core.records import Point
from costprobe.domain.costing.serving.serving_change import ratio_of_sums


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


def token_prices(rows: Iterable[Point], span_s: float) -> list[TokenPrice]:
    """Return the cost of tokens of each service, or of each of its models if there are several.

    Args:
        rows: Rows of `cost` on the serving basis, of the span.
        span_s: Length of the span in seconds.
    """
    groups: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for row in rows:
        tags = row.tags
        key = (tags.get("service", ""), tags.get("served_model", ""), tags.get("currency", ""))
        groups[key].append(row)
    with_models = {service for service, model, _ in groups if model}
    return [
        TokenPrice(
            service,
            model,
            currency,
            ratio_of_sums(group, "cost_per_million_tokens_in"),
            ratio_of_sums(group, "cost_per_million_tokens_out"),
            min(1.0, sum(_window_s(row) for row in group) / span_s),
        )
        for (service, model, currency), group in sorted(groups.items())
        if model or service not in with_models
    ]


def _window_s(row: Point) -> float:
    window_s = row.fields.get("window_s")
    return window_s if isinstance(window_s, float) else 0.0
