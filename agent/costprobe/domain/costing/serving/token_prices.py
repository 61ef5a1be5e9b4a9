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
    return [
        TokenPrice(
            service,
            model,
            currency,
            ratio_of_sums(group, "cost_per_million_tokens_in"),
            ratio_of_sums(group, "cost_per_million_tokens_out"),
            min(1.0, sum(_window_s(row) for row in group) / span_s),
        )
        for (service, model, currency), group in service_groups(rows).items()
    ]


def service_groups(rows: Iterable[Point]) -> dict[tuple[str, str, str], list[Point]]:
    """Return rows by service, model and currency; of a service with several models only theirs.

    Args:
        rows: Rows of `cost` on the serving basis.
    """
    groups: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for row in rows:
        tags = row.tags
        key = (tags.get("service", ""), tags.get("served_model", ""), tags.get("currency", ""))
        groups[key].append(row)
    several = {service for service, model, _ in groups if model}
    return {
        key: group
        for key, group in sorted(groups.items())
        # The row of the whole service is not that of a model.
        if key[1] or key[0] not in several
    }


def _window_s(row: Point) -> float:
    window_s = row.fields.get("window_s")
    return window_s if isinstance(window_s, float) else 0.0
