"""Division of a service's cost among its models, and between prompt and generated tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from costprobe.domain.costing.money import exact
from costprobe.domain.costing.serving.served import Counts, summed
from costprobe.domain.costing.serving.token_weights import TokenWeighing

TokenSplit = Literal["measured", "calibrated", "weights"]
ModelSplit = Literal["alone", "time", "tokens", "executions", "assumed"]


@dataclass(frozen=True, slots=True)
class TokenShares:
    """Division of an amount between prompt and generated tokens; the shares add up to 1.

    Attributes:
        split: Basis of the division.
        tokens_in: Share of the prompt tokens.
        tokens_out: Share of the generated tokens.
    """

    split: TokenSplit
    tokens_in: Fraction
    tokens_out: Fraction


def model_shares(
    models: Mapping[str, Counts], weighing: TokenWeighing
) -> tuple[list[Fraction], ModelSplit]:
    """Return weights of models by a measure that is known of all; a batch counts once in it.

    Only the last ways count a batch several times, or nothing at all: they are assumptions.
    """
    counts = list(models.values())
    ways: tuple[tuple[ModelSplit, list[float | None]], ...] = (
        ("time", [model_counts.work_s for model_counts in counts]),
        (
            "tokens",
            [
                _weighted_tokens(model, model_counts, weighing)
                for model, model_counts in models.items()
            ],
        ),
        ("executions", [model_counts.execution_s for model_counts in counts]),
        ("assumed", [model_counts.compute_request_s for model_counts in counts]),
        ("assumed", [model_counts.inferred for model_counts in counts]),
    )
    for split, values in ways:
        known_values = [value for value in values if value is not None]
        if len(known_values) == len(values) and sum(known_values) > 0:
            return [Fraction(exact(value)) for value in known_values], split
    return [Fraction(1)] * len(counts), "assumed"


def token_shares(models: Mapping[str, Counts], weighing: TokenWeighing) -> TokenShares | None:
    """Divide between prompt and generated tokens: by calibration or device time, else by weights."""
    total = summed(list(models.values()))
    # A kind without tokens has no cost per token: the other kind bears the whole cost.
    reads, writes = bool(total.tokens_in), bool(total.tokens_out)
    if not (reads or writes):
        return None
    split: TokenSplit
    parts = (total.prefill_s or 0.0, total.decode_s or 0.0)
    is_measured = all(_is_measured(counts) for counts in models.values()) and sum(parts) > 0
    if is_measured and weighing.calibrated is None:
        split = "measured"
    else:
        split = "weights" if weighing.calibrated is None else "calibrated"
        weighted = [_weighted_parts(model, counts, weighing) for model, counts in models.items()]
        parts = (sum(part for part, _ in weighted), sum(part for _, part in weighted))
    shares = [Fraction(exact(parts[0])) if reads else 0, Fraction(exact(parts[1])) if writes else 0]
    total_parts = sum(shares)
    if total_parts == 0:
        shares, total_parts = [reads, writes], reads + writes
    return TokenShares(split, Fraction(shares[0]) / total_parts, Fraction(shares[1]) / total_parts)


def _is_measured(counts: Counts) -> bool:
    """Whether prefill and decode are separated in all device time of a model that has tokens."""
    if not (counts.tokens_in or counts.tokens_out):
        return True
    return counts.prefill_s is not None and counts.decode_s is not None and not counts.compute_s


def _weighted_parts(model: str, counts: Counts, weighing: TokenWeighing) -> tuple[float, float]:
    """Return the weight of the computed prompt tokens, and of the generated ones."""
    weights = weighing.weights(model, counts)
    computed = max(0.0, (counts.tokens_in or 0.0) - (counts.cached_tokens or 0.0))
    return computed * weights.token_in, (counts.tokens_out or 0.0) * weights.token_out


def _weighted_tokens(model: str, counts: Counts, weighing: TokenWeighing) -> float | None:
    if counts.tokens_in is None and counts.tokens_out is None:
        return None
    return sum(_weighted_parts(model, counts, weighing))
