"""Cost per request and per token on the serving basis: the cost of production traffic.

Source: docs/serving.md: the whole cost of a service's devices in a window, idle time included,
divided by the counts of its server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from costprobe.domain.costing.money import divided, exact, total_of
from costprobe.domain.costing.serving.allocation import Allocation, Line
from costprobe.domain.costing.serving.served import Counts, ServedWindow
from costprobe.domain.costing.serving.serving_shares import (
    ModelSplit,
    TokenShares,
    model_shares,
    token_shares,
)
from costprobe.domain.costing.serving.token_weights import TokenWeighing

MILLION = 1_000_000
THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class ServedCost:
    """Serving cost of a service or one of its models in a window.

    Attributes:
        model: Served model; "" for the service as a whole.
        counts: Requests and tokens.
        hardware: Currency for the devices without electricity.
        energy: Currency for electricity.
        idle: The idle part of both; None if unknown.
        share: Share of the service's cost; 1 for the service as a whole.
        tokens: Division between tokens in and out; None if there is none.
        device_s: Device-seconds that it paid for.
        device_busy_s: Those in which the devices were busy; None if unknown.
    """

    model: str
    counts: Counts
    hardware: Decimal
    energy: Decimal
    idle: Decimal | None
    share: Fraction = Fraction(1)
    tokens: TokenShares | None = None
    device_s: float = 0.0
    device_busy_s: float | None = None

    @property
    def cost(self) -> Decimal:
        """Currency for devices and electricity."""
        return total_of([self.hardware, self.energy])

    @property
    def idle_share(self) -> float | None:
        """The idle share of the cost."""
        return None if self.idle is None else _ratio(self.idle, float(self.cost))

    @property
    def per_request(self) -> float | None:
        """Currency per request; None without requests."""
        return _ratio(self.cost, self.counts.requests)

    @property
    def per_inference(self) -> float | None:
        """Currency per inferred item; None without inferences."""
        return _ratio(self.cost, self.counts.inferred)

    @property
    def tokens_in_cost(self) -> Decimal | None:
        """Currency for prompt tokens; None if there are none."""
        return self._token_costs[0] if self.counts.tokens_in else None

    @property
    def tokens_out_cost(self) -> Decimal | None:
        """Currency for generated tokens; None if there are none."""
        return self._token_costs[1] if self.counts.tokens_out else None

    @property
    def _token_costs(self) -> list[Decimal | None]:
        if self.tokens is None:
            return [None, None]
        return [*divided(self.cost, [self.tokens.tokens_in, self.tokens.tokens_out])]

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
        window: Its counts.
        devices: Names of its devices.
        total: Cost of the whole service; None if the window is incomplete.
        models: Cost of its models, if it serves several; they sum to the total.
        model_split: Basis of the division among the models.
        problems: Reasons why the window is incomplete.
    """

    window: ServedWindow
    devices: tuple[str, ...]
    total: ServedCost | None
    models: tuple[ServedCost, ...] = ()
    model_split: ModelSplit = "alone"
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the cost is known."""
        return self.total is not None


def service_cost(
    window: ServedWindow,
    devices: Sequence[str],
    allocations: Mapping[str, Allocation],
    weighing: TokenWeighing,
) -> ServiceCost:
    """Join a service's counts with its devices' cost.

    Args:
        window: What it served.
        devices: Names of its devices.
        allocations: Cost allocation of each device, by name.
        weighing: Weights of tokens, where their device time is not measured.
    """
    problems = list(window.problems)
    for device in devices:
        allocation = allocations.get(device)
        if allocation is None:
            problems.append(f"the cost of {device} is unknown")
        elif window.service in allocation.problems:
            problems.append(allocation.problems[window.service])
    device_names = tuple(devices)
    if window.total.requests is None and (window.missing or not _counts_tokens(window.total)):
        problems += window.missing or ("neither its requests nor its tokens are counted",)
    if problems:
        return ServiceCost(window, device_names, None, problems=tuple(dict.fromkeys(problems)))
    lines = [
        line
        for device in devices
        for line in allocations[device].lines
        if line.service == window.service
    ]
    total = _served_cost(window, lines, weighing)
    models, split = _divided_among_models(total, window.models, weighing)
    return ServiceCost(window, device_names, total, models, split)


def _counts_tokens(counts: Counts) -> bool:
    return counts.tokens_in is not None or counts.tokens_out is not None


def _served_cost(
    window: ServedWindow, lines: Sequence[Line], weighing: TokenWeighing
) -> ServedCost:
    is_known = all(line.part != "held" for line in lines)
    return ServedCost(
        model="",
        counts=window.total,
        hardware=total_of([line.hardware for line in lines]),
        energy=total_of([line.energy for line in lines]),
        idle=total_of([line.cost for line in lines if line.part == "idle"]) if is_known else None,
        tokens=token_shares(window.models, weighing),
        device_s=math.fsum(line.device_s for line in lines),
        device_busy_s=math.fsum(line.device_s for line in lines if line.part == "busy")
        if is_known
        else None,
    )


def _divided_among_models(
    total: ServedCost, models: Mapping[str, Counts], weighing: TokenWeighing
) -> tuple[tuple[ServedCost, ...], ModelSplit]:
    """Divide a service's cost among its models by their work."""
    named_models = {model: counts for model, counts in models.items() if model}
    if len(named_models) <= 1:
        return (), "alone"
    shares, split = model_shares(named_models, weighing)
    parts = zip(
        named_models.items(),
        divided(total.hardware, shares),
        divided(total.energy, shares),
        [None] * len(shares) if total.idle is None else divided(total.idle, shares),
        shares,
        strict=True,
    )
    return tuple(
        ServedCost(
            model,
            counts,
            hardware,
            energy,
            idle,
            share / sum(shares),
            token_shares({model: counts}, weighing),
            total.device_s * float(share / sum(shares)),
            total.device_busy_s and total.device_busy_s * float(share / sum(shares)),
        )
        for (model, counts), hardware, energy, idle, share in parts
    ), split


def _ratio(amount: Decimal | None, count: float | None, per: int = 1) -> float | None:
    if amount is None or not count:
        return None
    return float(Fraction(amount) * per / Fraction(exact(count)))
