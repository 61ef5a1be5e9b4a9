"""Cost, energy and carbon per request and per token of production traffic, by model and tenant.

Source: docs/serving.md: the whole cost of a service's devices in a window, idle time included,
divided by the counts of its server. The cost is divided among the service's models, and between
prompt and generated tokens. The rolling cost is the ratio of cost to inferences in a rolling
window.

Joules, idle time included: a device's energy is divided among its services like its cost, probing
excluded, whatever its price. Models and tokens share it like the cost. Grams of CO2-equivalent
are from the electricity of the devices: a service's part of a device's emissions is its share of
the device's energy, idle time included.

Tenants divide a service's cost in parts that add up to it exactly. A tenant's share is its
weighted tokens, divided by those of the service. A token weighs what it cost in the same window:
the service's cost of fresh, cached and generated tokens, divided by their numbers; where the tenants'
cached tokens are not counted, all prompt tokens weigh the same. What the tenants' counters do
not explain is unattributed; counters that exceed the service's are reduced in proportion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from costprobe.core.money import divided, exact, total_of
from costprobe.core.records import NS_PER_S, Energy, FieldValue
from costprobe.core.schema import UNATTRIBUTED
from costprobe.core.statistics import MAX_SAMPLES, WINDOWS_S
from costprobe.devices.use import energy_sum
from costprobe.pricing.electricity import Emission
from costprobe.serving.allocation import Allocation, DeviceUse, Line, allocate
from costprobe.serving.meter import Counts, ServedWindow, summed
from costprobe.serving.tokens import MILLION, TokenWeighing

TokenSplit = Literal["measured", "calibrated", "weights"]
ModelSplit = Literal["alone", "time", "tokens", "executions", "assumed"]
THOUSAND = 1000
# The share of a device's energy by the name of a service; that of none is under "".
EnergyShares = Mapping[str, Fraction]
_KINDS: Final = ("tokens_in", "cached_tokens", "tokens_out", "requests")


@dataclass(frozen=True, slots=True)
class TokenShares:
    """Division of an amount between prompt and generated tokens; the shares add up to 1.

    Attributes:
        split: Basis of the division.
        tokens_in: Share of the prompt tokens.
        tokens_out: Share of the generated tokens.
        cached: The part of tokens_in of those that a cache answered.
    """

    split: TokenSplit
    tokens_in: Fraction
    tokens_out: Fraction
    cached: Fraction = Fraction(0)

    @property
    def fresh(self) -> Fraction:
        """Share of the computed prompt tokens."""
        return self.tokens_in - self.cached


def _model_shares(
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
    """Divide between prompt and generated tokens: by calibration or device time, else by weights.

    The part of the prompt tokens is divided between fresh and cached ones by weights in any case.
    """
    total = summed(list(models.values()))
    # A kind without tokens has no cost per token: the other kind bears the whole cost.
    reads, writes = bool(total.tokens_in), bool(total.tokens_out)
    if not (reads or writes):
        return None
    split: TokenSplit
    weighted = [_weighted_parts(model, counts, weighing) for model, counts in models.items()]
    fresh, cached, out = (Fraction(exact(sum(parts))) for parts in zip(*weighted, strict=True))
    parts = (Fraction(exact(total.prefill_s or 0.0)), Fraction(exact(total.decode_s or 0.0)))
    is_measured = all(_is_measured(counts) for counts in models.values()) and sum(parts) > 0
    if is_measured and weighing.calibrated is None:
        split = "measured"
    else:
        split = "weights" if weighing.calibrated is None else "calibrated"
        parts = (fresh + cached, out)
    shares = [parts[0] * reads, parts[1] * writes]
    if not sum(shares):
        shares = [Fraction(reads), Fraction(writes)]
    # Of all models together none may be fresh, though one counts more hits than tokens.
    fresh = fresh if total.fresh_tokens else Fraction(0)
    if not fresh + cached:
        counted = (total.fresh_tokens or 0.0, total.cached_tokens or 0.0)
        fresh, cached = (Fraction(exact(count)) for count in counted)
    tokens_in, tokens_out = (share / sum(shares) for share in shares)
    of_cached = cached / (fresh + cached) if fresh + cached else Fraction(0)
    return TokenShares(split, tokens_in, tokens_out, tokens_in * of_cached)


def _is_measured(counts: Counts) -> bool:
    """Whether prefill and decode are separated in all device time of a model that has tokens."""
    if not (counts.tokens_in or counts.tokens_out):
        return True
    return counts.prefill_s is not None and counts.decode_s is not None and not counts.compute_s


def _weighted_parts(
    model: str, counts: Counts, weighing: TokenWeighing
) -> tuple[float, float, float]:
    """Return the weight of the computed prompt tokens, of the cached ones, and of the generated ones."""
    weights = weighing.weights(model, counts)
    return (
        (counts.fresh_tokens or 0.0) * weights.token_in,
        (counts.cached_tokens or 0.0) * weights.cached,
        (counts.tokens_out or 0.0) * weights.token_out,
    )


def _weighted_tokens(model: str, counts: Counts, weighing: TokenWeighing) -> float | None:
    if counts.tokens_in is None and counts.tokens_out is None:
        return None
    return sum(_weighted_parts(model, counts, weighing))


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
        parts = [part for part in self._token_costs[:2] if part is not None]
        return total_of(parts) if self.counts.tokens_in and parts else None

    @property
    def tokens_fresh_cost(self) -> Decimal | None:
        """Currency for computed prompt tokens; None if there are none."""
        return self._token_costs[0] if self.counts.fresh_tokens else None

    @property
    def tokens_cached_cost(self) -> Decimal | None:
        """Currency for cached prompt tokens; None if there are none."""
        return self._token_costs[1] if self.counts.cached_tokens else None

    @property
    def tokens_out_cost(self) -> Decimal | None:
        """Currency for generated tokens; None if there are none."""
        return self._token_costs[2] if self.counts.tokens_out else None

    @property
    def _token_costs(self) -> list[Decimal | None]:
        if self.tokens is None:
            return [None, None, None]
        tokens = self.tokens
        return [*divided(self.cost, [tokens.fresh, tokens.cached, tokens.tokens_out])]

    @property
    def per_million_tokens_in(self) -> float | None:
        """Currency per million prompt tokens, cached ones included."""
        return _ratio(self.tokens_in_cost, self.counts.tokens_in, MILLION)

    @property
    def per_million_tokens_fresh(self) -> float | None:
        """Currency per million computed prompt tokens."""
        return _ratio(self.tokens_fresh_cost, self.counts.fresh_tokens, MILLION)

    @property
    def per_million_tokens_cached(self) -> float | None:
        """Currency per million cached prompt tokens; 0 if their weight was not measured."""
        return _ratio(self.tokens_cached_cost, self.counts.cached_tokens, MILLION)

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens that a cache answered; None if they are not counted."""
        cached, whole = self.counts.cached_tokens, self.counts.tokens_in
        return cached / whole if cached is not None and whole else None

    @property
    def cache_saved(self) -> float | None:
        """Currency that the cached tokens would have cost in addition at the price of fresh ones."""
        counts, fresh, cached = self.counts, self.tokens_fresh_cost, self.tokens_cached_cost
        if fresh is None or cached is None or not counts.fresh_tokens:
            return None
        return float(fresh) / counts.fresh_tokens * (counts.cached_tokens or 0.0) - float(cached)

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
    shares, split = _model_shares(named_models, weighing)
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


@dataclass(frozen=True, slots=True)
class ServedEnergy:
    """Energy of a service, or of one of its models, in a window.

    Attributes:
        total: Of all of it, with method and uncertainty.
        tokens_in_j: Joules of prompt tokens; None without a division between tokens.
        tokens_out_j: Joules of generated tokens, likewise.
        per_inference_j: Joules per inferred item; None where none was inferred.
        per_request_j: Joules per request; None where none was answered.
        per_million_tokens_in_j: Joules per million prompt tokens, cached ones included.
        per_million_tokens_out_j: Joules per million generated tokens.
    """

    total: Energy
    tokens_in_j: float | None
    tokens_out_j: float | None
    per_inference_j: float | None
    per_request_j: float | None
    per_million_tokens_in_j: float | None
    per_million_tokens_out_j: float | None

    def figures(self) -> dict[str, float | None]:
        """Its figures by the names of fields."""
        return {
            "energy_j": self.total.energy_j,
            "energy_tokens_in_j": self.tokens_in_j,
            "energy_tokens_out_j": self.tokens_out_j,
            "energy_per_inference_j": self.per_inference_j,
            "energy_per_request_j": self.per_request_j,
            "energy_per_million_tokens_in_j": self.per_million_tokens_in_j,
            "energy_per_million_tokens_out_j": self.per_million_tokens_out_j,
        }

    def fields(self) -> dict[str, FieldValue | None]:
        """The energy fields of a row of `cost`."""
        return {
            **self.figures(),
            "energy_method": self.total.method,
            "energy_rel_err": self.total.rel_err,
            "energy_scope": "parent" if self.total.scope == "parent" else None,
            "energy_suspect": self.total.suspect,
        }


def service_energy(
    cost: ServiceCost, shares: Mapping[str, EnergyShares], drawn: Mapping[str, Energy | None]
) -> Energy | None:
    """Return the energy of a service; None where it has no cost or a device's energy is unknown.

    The uncertainty is that of the sensors; the division among services is not part of it.

    Args:
        cost: What the service cost.
        shares: Each service's share of the energy of each device, by the device's name.
        drawn: Energy of each device in the window, by name.
    """
    if cost.total is None:
        return None
    parts = []
    for name in cost.devices:
        energy = drawn.get(name)
        share = shares.get(name, {}).get(cost.window.service)
        if energy is None or share is None:
            return None
        parts.append(replace(energy, energy_j=energy.energy_j * float(share), idle_power_w=None))
    return energy_sum(parts)


def served_energy(cost: ServedCost, energy: Energy) -> ServedEnergy:
    """Return the energy of a service or one of its models, per request and token.

    Args:
        cost: What it cost.
        energy: Energy of the service.
    """
    energy_j = energy.energy_j * float(cost.share)
    counts, tokens = cost.counts, cost.tokens
    in_j = energy_j * float(tokens.tokens_in) if tokens and counts.tokens_in else None
    out_j = energy_j * float(tokens.tokens_out) if tokens and counts.tokens_out else None
    return ServedEnergy(
        total=replace(energy, energy_j=energy_j),
        tokens_in_j=in_j,
        tokens_out_j=out_j,
        per_inference_j=_per(energy_j, counts.inferred),
        per_request_j=_per(energy_j, counts.requests),
        per_million_tokens_in_j=_per(in_j, counts.tokens_in, MILLION),
        per_million_tokens_out_j=_per(out_j, counts.tokens_out, MILLION),
    )


def energy_shares(use: DeviceUse, energy_j: float, probing_j: float | None) -> EnergyShares:
    """Return each service's share of a device's energy in a window.

    Args:
        use: Use of the device; its prices do not matter.
        energy_j: Energy of the device.
        probing_j: Energy of probing in the window; None to take its part by time.
    """
    exact_energy = exact(max(energy_j, 0.0)) or Decimal(1)
    probing = None if probing_j is None or energy_j <= 0 else exact(max(probing_j, 0.0))
    allocation = allocate(
        replace(
            use, hardware=Decimal(0), energy=exact_energy, probing_energy=probing, idle_energy=None
        )
    )
    shares: dict[str, Fraction] = {}
    for line in allocation.lines:
        share = Fraction(line.energy) / Fraction(exact_energy)
        shares[line.service] = shares.get(line.service, Fraction(0)) + share
    return shares


def _per(energy_j: float | None, count: float | None, per: int = 1) -> float | None:
    return energy_j * per / count if energy_j is not None and count else None


@dataclass(frozen=True, slots=True)
class ServedEmission:
    """Emissions of serving in a window.

    Attributes:
        service: Emissions of the whole service.
        models: Emissions of each model by name, if there are several; they sum to the whole.
    """

    service: Emission
    models: Mapping[str, Emission]


def served_emission(
    cost: ServiceCost,
    shares: Mapping[str, EnergyShares],
    emitted: Mapping[str, Emission | None],
) -> ServedEmission | None:
    """Return the emissions of a service; None without a cost, or if those of a device are unknown.

    Args:
        cost: Cost of the service.
        shares: Each service's share of the energy of each device, by the device's name.
        emitted: Emissions of each device, by name.
    """
    if cost.total is None:
        return None
    parts = [shares.get(name, {}).get(cost.window.service) for name in cost.devices]
    emissions = [emitted.get(name) for name in cost.devices]
    borne = [
        Emission(emission.g * float(part), emission.method)
        for emission, part in zip(emissions, parts, strict=True)
        if emission is not None and part is not None
    ]
    if len(borne) < len(cost.devices):
        return None
    service_emission = Emission(sum(emission.g for emission in borne), borne[0].method)
    return ServedEmission(service_emission, _of_models(service_emission, cost.models))


def _of_models(service_emission: Emission, models: Sequence[ServedCost]) -> dict[str, Emission]:
    """Each model's part, by its share of the cost."""
    return {
        model.model: Emission(service_emission.g * float(model.share), service_emission.method)
        for model in models
    }


@dataclass(frozen=True, slots=True)
class RolledRatio:
    """Summary of a rolling window.

    Attributes:
        per_inference: Currency per inference; None without inferences.
        coverage: Share of the rolling window that complete windows cover.
    """

    per_inference: float | None
    coverage: float


class RollingRatio:
    """The complete windows of the last week of one service."""

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float, float, float]] = deque(maxlen=MAX_SAMPLES)

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the end of the last window; 0 before the first."""
        return self._windows[-1][0] if self._windows else 0

    def add(self, time_ns: int, duration_s: float, cost: float, inferred: float) -> None:
        """Add a complete window; windows older than the longest rolling window are dropped.

        Args:
            time_ns: UTC in ns of its end.
            duration_s: Its length in seconds.
            cost: Its cost in currency, idle time included.
            inferred: Number of inferences; may be 0.
        """
        self._windows.append((time_ns, duration_s, cost, inferred))
        oldest_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        while self._windows and self._windows[0][0] <= oldest_ns:
            self._windows.popleft()

    def summaries(self, now_ns: int) -> dict[str, RolledRatio]:
        """Return each rolling window that ends at UTC now_ns and contains a window, by its name."""
        summaries: dict[str, RolledRatio] = {}
        for name, window_s in WINDOWS_S.items():
            since_ns = now_ns - window_s * NS_PER_S
            inside = [window for window in self._windows if since_ns < window[0] <= now_ns]
            if not inside:
                continue
            cost = sum(window[2] for window in inside)
            inferred = sum(window[3] for window in inside)
            summaries[name] = RolledRatio(
                per_inference=cost / inferred if inferred > 0 else None,
                coverage=min(1.0, sum(window[1] for window in inside) / window_s),
            )
        return summaries


@dataclass(frozen=True, slots=True)
class TenantCost:
    """One tenant's part of a service's cost.

    Attributes:
        tenant: Its name, "other" or "unattributed".
        cost: Currency.
        share: Its share of the service's cost.
        counts: Its tokens and requests as they were counted; of "unattributed" those that no
            tenant's counter explains.
        cache_saved: Currency that the cache saved it, of what it saved the service; None if unknown.
    """

    tenant: str
    cost: Decimal
    share: Fraction
    counts: Counts
    cache_saved: float | None = None


@dataclass(frozen=True, slots=True)
class TenantSplit:
    """The cost of a service in a window by tenant.

    Attributes:
        tenants: The parts, the largest first and "unattributed" last; they add up to the cost.
        counted_share: What the tenants' counters count, as a share of what the service counts;
            above 1 the parts are reduced in proportion. None if it cannot be known.
        problems: Reasons why the whole cost is unattributed.
    """

    tenants: tuple[TenantCost, ...]
    counted_share: Fraction | None
    problems: tuple[str, ...] = ()


def tenant_split(total: ServedCost, counted: ServedWindow) -> TenantSplit:
    """Divide a service's cost among its tenants.

    Args:
        total: Cost and counts of the service in a window.
        counted: Counts of the same window by tenant, in place of models.
    """
    problems = counted.problems or counted.missing
    if problems:
        return _unattributed(total, problems)
    tenants = {name: counts for name, counts in counted.models.items() if name}
    weights = _weights(total, tenants)
    if not weights and any(_nonzero(counts) for counts in tenants.values()):
        return _unattributed(
            total, ("the service counts none of what its tenants' counters count",)
        )
    shares = {name: _weighed(counts, weights) for name, counts in tenants.items()}
    counted_share = sum(shares.values(), Fraction(0))
    rest = max(Fraction(0), 1 - counted_share)
    shares[UNATTRIBUTED] = shares.get(UNATTRIBUTED, Fraction(0)) + rest
    whole = counted_share + rest
    names = sorted(shares, key=lambda name: (name == UNATTRIBUTED, -shares[name], name))
    parts = divided(total.cost, [shares[name] for name in names])
    named = {name: counts for name, counts in tenants.items() if name != UNATTRIBUTED}
    known = {**named, UNATTRIBUTED: _remaining(total.counts, named)}
    saved = _divided_by_hits(total.cache_saved, known)
    return TenantSplit(
        tuple(
            TenantCost(
                name,
                cost,
                shares[name] / whole,
                known[name],
                saved.get(name),
            )
            for name, cost in zip(names, parts, strict=True)
        ),
        counted_share if weights else None,
    )


def _divided_by_hits(saved: float | None, counts: Mapping[str, Counts]) -> dict[str, float]:
    """Divide what the cache saved among tenants by their cached tokens, as far as these are counted."""
    hits = {
        name: each.cached_tokens for name, each in counts.items() if each.cached_tokens is not None
    }
    whole = math.fsum(hits.values())
    if saved is None or not whole:
        return {}
    return {name: saved * cached / whole for name, cached in hits.items()}


def _unattributed(total: ServedCost, problems: tuple[str, ...]) -> TenantSplit:
    rest = _remaining(total.counts, {})
    whole = TenantCost(UNATTRIBUTED, total.cost, Fraction(1), rest, total.cache_saved)
    return TenantSplit((whole,), None, problems)


def _weights(total: ServedCost, tenants: Mapping[str, Counts]) -> dict[str, Fraction]:
    """Return the share of the cost that one token, or one request, of each kind bears."""
    known = {
        kind
        for kind in ("fresh_tokens", *_KINDS)
        if getattr(total.counts, kind)
        and any(getattr(counts, kind) is not None for counts in tenants.values())
    }
    shares: dict[str, Fraction] = {}
    if (tokens := total.tokens) is not None:
        shares = {"tokens_in": tokens.tokens_in}
        # A server that does not report its hits to the gateway has no cached tokens there.
        if "cached_tokens" in known and any(counts.cached_tokens for counts in tenants.values()):
            shares = {"fresh_tokens": tokens.fresh, "cached_tokens": tokens.cached}
        shares["tokens_out"] = tokens.tokens_out
    shares = {kind: share for kind, share in shares.items() if kind in known}
    if not any(shares.values()):
        shares = {}
    if not shares and "requests" in known:
        shares = {"requests": Fraction(1)}
    whole = sum(shares.values(), Fraction(0))
    return {
        kind: share / whole / Fraction(exact(getattr(total.counts, kind)))
        for kind, share in shares.items()
    }


def _weighed(counts: Counts, weights: Mapping[str, Fraction]) -> Fraction:
    return sum(
        (
            weight * Fraction(exact(getattr(counts, kind) or 0.0))
            for kind, weight in weights.items()
        ),
        Fraction(0),
    )


def _nonzero(counts: Counts) -> bool:
    return any(getattr(counts, kind) for kind in _KINDS)


def _remaining(counts: Counts, tenants: Mapping[str, Counts]) -> Counts:
    """Return the service's counts without those of the tenants, never below 0."""
    left: dict[str, float] = {}
    for kind in _KINDS:
        whole = getattr(counts, kind)
        if whole is not None:
            attributed = sum(getattr(each, kind) or 0.0 for each in tenants.values())
            left[kind] = max(0.0, whole - attributed)
    return Counts(**left)
