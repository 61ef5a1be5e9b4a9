"""Cost per request and per token on the serving basis: the cost of production traffic.

Source: docs/serving.md: the whole cost of a service's devices in a window, idle time included,
divided by what its server counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from costprobe.domain.costing.money import divided, exact, total_of
from costprobe.domain.costing.serving.allocation import Allocation, Line
from costprobe.domain.costing.serving.served import Counts, ServedWindow

TokenSplit = Literal["measured", "weights"]
ModelSplit = Literal["alone", "time", "tokens", "inferences"]
MILLION = 1_000_000
THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Weights:
    """Relative cost of tokens, where the server does not measure it.

    Attributes:
        token_in: Weight of a prompt token that was not cached.
        token_out: Weight of a generated token.
    """

    token_in: float = 1.0
    token_out: float = 4.0


@dataclass(frozen=True, slots=True)
class ServedCost:
    """Serving cost in a window, of a service or one of its models.

    Attributes:
        model: Served model; "" for the service as a whole.
        counts: What was served.
        hardware: Currency for holding the devices.
        energy: Currency for electricity.
        idle: The idle part of both; None where it is unknown.
        token_split: Basis of the split between tokens in and out; None if there is none.
        tokens_in_cost: Currency for prompt tokens; None if the cost was not split.
        tokens_out_cost: Currency for generated tokens; both add up to the whole cost.
    """

    model: str
    counts: Counts
    hardware: Decimal
    energy: Decimal
    idle: Decimal | None
    token_split: TokenSplit | None = None
    tokens_in_cost: Decimal | None = None
    tokens_out_cost: Decimal | None = None

    @property
    def cost(self) -> Decimal:
        """Currency, all in."""
        return total_of([self.hardware, self.energy])

    @property
    def idle_share(self) -> float | None:
        """The idle share of the cost."""
        return None if self.idle is None else _ratio(self.idle, float(self.cost))

    @property
    def per_request(self) -> float | None:
        """Currency per request; None where none was answered."""
        return _ratio(self.cost, self.counts.requests)

    @property
    def per_inference(self) -> float | None:
        """Currency per inferred item; None where none was."""
        return _ratio(self.cost, self.counts.inferred)

    @property
    def per_million_tokens_in(self) -> float | None:
        """Currency per million prompt tokens, cached ones included."""
        return _ratio(self.tokens_in_cost, self.counts.tokens_in, MILLION)

    @property
    def per_million_tokens_out(self) -> float | None:
        """Currency per million generated tokens."""
        return _ratio(self.tokens_out_cost, self.counts.tokens_out, MILLION)


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """Cost of a service in a window.

    Attributes:
        window: What it served.
        devices: Names of its devices.
        total: The service as a whole; None where the window is incomplete: a cost without a
            request or a device would be wrong.
        models: Its models, if it serves several; they add up to the whole.
        model_split: Basis of the division among the models.
        problems: Why the window is incomplete.
    """

    window: ServedWindow
    devices: tuple[str, ...]
    total: ServedCost | None
    models: tuple[ServedCost, ...] = ()
    model_split: ModelSplit = "alone"
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether there is a cost."""
        return self.total is not None


def service_cost(
    window: ServedWindow,
    devices: Sequence[str],
    allocations: Mapping[str, Allocation],
    weights: Weights,
) -> ServiceCost:
    """Join a service's counts with its devices' cost.

    Args:
        window: What it served.
        devices: Names of its devices.
        allocations: Cost allocation of each device, by name.
        weights: Weights of tokens, where their cost is not measured.
    """
    problems = list(window.problems)
    for device in devices:
        found = allocations.get(device)
        if found is None:
            problems.append(f"the cost of {device} is unknown")
        elif window.service in found.problems:
            problems.append(found.problems[window.service])
    named = tuple(devices)
    if window.total.requests is None:
        problems += window.missing or ("its requests are not counted",)
    if problems:
        return ServiceCost(window, named, None, problems=tuple(dict.fromkeys(problems)))
    lines = [
        line
        for device in devices
        for line in allocations[device].lines
        if line.service == window.service
    ]
    total = _served_cost("", window.total, lines, weights)
    models, split = _divided_among_models(total, window.models, weights)
    return ServiceCost(window, named, total, models, split)


def _served_cost(model: str, counts: Counts, lines: Sequence[Line], weights: Weights) -> ServedCost:
    known = all(line.part != "held" for line in lines)
    return _with_tokens(
        ServedCost(
            model=model,
            counts=counts,
            hardware=total_of([line.hardware for line in lines]),
            energy=total_of([line.energy for line in lines]),
            idle=total_of([line.cost for line in lines if line.part == "idle"]) if known else None,
        ),
        weights,
    )


def _divided_among_models(
    total: ServedCost, models: Mapping[str, Counts], weights: Weights
) -> tuple[tuple[ServedCost, ...], ModelSplit]:
    """Divide a service's cost among its models by their work."""
    named = {model: counts for model, counts in models.items() if model}
    if len(named) <= 1:
        return (), "alone"
    shares, split = _model_shares(list(named.values()), weights)
    if sum(shares) == 0:
        return (), split
    parts = zip(
        named.items(),
        divided(total.hardware, shares),
        divided(total.energy, shares),
        [None] * len(shares) if total.idle is None else divided(total.idle, shares),
        strict=True,
    )
    return tuple(
        _with_tokens(ServedCost(model, counts, hardware, energy, idle), weights)
        for (model, counts), hardware, energy, idle in parts
    ), split


def _model_shares(counts: Sequence[Counts], weights: Weights) -> tuple[list[Fraction], ModelSplit]:
    """Return shares by measured time if it is known of all, else by weighted tokens or inferences."""
    ways: tuple[tuple[ModelSplit, list[float | None]], ...] = (
        ("time", [one.work_s for one in counts]),
        ("tokens", [_weighted_tokens(one, weights) for one in counts]),
        ("inferences", [one.inferred for one in counts]),
    )
    for split, values in ways:
        known = [value for value in values if value is not None]
        if len(known) == len(values) and sum(known) > 0:
            return [Fraction(exact(value)) for value in known], split
    return [Fraction(0)] * len(counts), "inferences"


def _with_tokens(cost: ServedCost, weights: Weights) -> ServedCost:
    """Split the cost between prompt and generated tokens."""
    counts = cost.counts
    if counts.tokens_in is None and counts.tokens_out is None:
        return cost
    split: TokenSplit = "weights"
    parts = (
        _computed_in(counts) * weights.token_in,
        (counts.tokens_out or 0.0) * weights.token_out,
    )
    if counts.prefill_s is not None and counts.decode_s is not None:
        measured = (counts.prefill_s, counts.decode_s)
        if sum(measured) > 0:
            parts, split = measured, "measured"
    # A part without tokens has no cost per token: the other part bears it.
    reads, writes = bool(counts.tokens_in), bool(counts.tokens_out)
    shares = [Fraction(exact(parts[0])) if reads else 0, Fraction(exact(parts[1])) if writes else 0]
    if sum(shares) == 0:
        if not (reads or writes):
            return cost
        shares = [Fraction(reads), Fraction(writes)]
    tokens_in_cost, tokens_out_cost = divided(cost.cost, [Fraction(share) for share in shares])
    return ServedCost(
        model=cost.model,
        counts=counts,
        hardware=cost.hardware,
        energy=cost.energy,
        idle=cost.idle,
        token_split=split,
        tokens_in_cost=tokens_in_cost if reads else None,
        tokens_out_cost=tokens_out_cost if writes else None,
    )


def _computed_in(counts: Counts) -> float:
    """Return the prompt tokens that were not cached."""
    return max(0.0, (counts.tokens_in or 0.0) - (counts.cached_tokens or 0.0))


def _weighted_tokens(counts: Counts, weights: Weights) -> float | None:
    if counts.tokens_in is None and counts.tokens_out is None:
        return None
    written = (counts.tokens_out or 0.0) * weights.token_out
    return _computed_in(counts) * weights.token_in + written


def _ratio(amount: Decimal | None, count: float | None, per: int = 1) -> float | None:
    if amount is None or not count:
        return None
    return float(Fraction(amount) * per / Fraction(exact(count)))
