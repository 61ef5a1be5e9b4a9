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
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal

from costprobe.core.money import divided, exact, total_of
from costprobe.core.records import NS_PER_S, Energy, FieldValue
from costprobe.core.schema import SERVING_RATIOS, UNATTRIBUTED
from costprobe.core.slo import SloShare
from costprobe.core.statistics import MAX_SAMPLES, WINDOWS_S
from costprobe.devices.use import energy_sum
from costprobe.pricing.electricity import Emission
from costprobe.serving.allocation import DeviceBill
from costprobe.serving.meter import Counts, ServedWindow, summed
from costprobe.serving.settings import Role
from costprobe.serving.tokens import MILLION, TokenWeighing

TokenSplit = Literal["measured", "calibrated", "weights", "role"]
ModelSplit = Literal["alone", "time", "tokens", "executions", "assumed"]
THOUSAND = 1000
KINDS: Final = ("tokens_in", "cached_tokens", "tokens_out", "requests")
# Counts that a row of `cost` repeats: databases divide sums of one measurement only.
UNITS: Final = ("requests", "tokens_in", "tokens_out", "cached_tokens", "fresh_tokens")
# Shares of all tenants that differ from 1 by less are all.
_ROUNDING: Final = 1e-9
# A count of a window below this is none: nothing is divided by it.
LEAST_COUNT: Final = 1e-9
# What a part of a group has none of: it is divided by counts, which another part may have.
_OF_WHOLE: Final = frozenset(
    field
    for name, ratio in SERVING_RATIOS.items()
    if ratio.is_of_counts
    for field in (name, ratio.per)
)


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
    tokens_in: float
    tokens_out: float
    cached: float = 0.0

    @property
    def fresh(self) -> float:
        """Share of the computed prompt tokens."""
        return self.tokens_in - self.cached


@dataclass(frozen=True, slots=True)
class ServedCost:
    """What a service, or one of its models, cost, drew and emitted in a window.

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
        drawn: Energy, whose uncertainty is that of the sensors; None if that of a device is unknown.
        emitted: Emissions, likewise.
        role: What the service is of its group: a part has neither counts nor unit costs in its rows.
    """

    model: str
    counts: Counts
    hardware: Decimal
    energy: Decimal
    idle: Decimal | None
    share: float = 1.0
    tokens: TokenShares | None = None
    device_s: float = 0.0
    device_busy_s: float | None = None
    drawn: Energy | None = None
    emitted: Emission | None = None
    role: Role = "all"

    @property
    def cost(self) -> Decimal:
        """Currency for devices and electricity."""
        return total_of([self.hardware, self.energy])

    @property
    def token_costs(self) -> tuple[Decimal, Decimal, Decimal] | None:
        """Currency for computed prompt tokens, cached ones, and generated ones; they add up to the cost."""
        if self.tokens is None:
            return None
        weights = [self.tokens.fresh, self.tokens.cached, self.tokens.tokens_out]
        fresh, cached, out = divided(self.cost, weights)
        return fresh, cached, out

    def figures(self) -> dict[str, FieldValue | None]:
        """Return all figures under the names of the series; None where one is unknown."""
        counts, cost, inferred = self.counts, self.cost, self.counts.inferred
        per_inference = _per(cost, inferred)
        figures: dict[str, FieldValue | None] = {
            "cost_total": float(cost),
            "cost_idle": None if self.idle is None else float(self.idle),
            "cost_idle_known": None if self.idle is None else float(cost),
            "idle_share": None if self.idle is None else _per(self.idle, float(cost)),
            "cost_per_inference": per_inference,
            "cost_per_thousand_inferences": per_inference and per_inference * THOUSAND,
            "cost_per_request": _per(cost, counts.requests),
            "cost_hardware": _per(float(self.hardware), inferred),
            "cost_energy": _per(float(self.energy), inferred),
            # What ratios over several windows are computed from.
            **{name: getattr(counts, name) for name in UNITS},
            "inferences": inferred,
            "cost_total_hardware": float(self.hardware),
            "cost_total_energy": float(self.energy),
            "device_s": self.device_s,
            "device_busy_s": self.device_busy_s,
            "decode_request_s": counts.decode_request_s,
            **self._token_figures(),
            **self._energy_figures(),
            **self._carbon_figures(),
        }
        if self.role == "all":
            return figures
        return {name: None if name in _OF_WHOLE else figures[name] for name in figures}

    def _token_figures(self) -> dict[str, FieldValue | None]:
        counts, costs = self.counts, self.token_costs
        if counts.tokens_in is None and counts.tokens_out is None:
            return {}
        fresh, cached, out = costs or [Decimal(0)] * 3
        both = total_of([fresh, cached])
        per_fresh = _per(float(fresh), counts.fresh_tokens)
        hits = counts.cached_tokens
        return {
            # 0 of a kind that was not served.
            "cost_tokens_in": float(both),
            "cost_tokens_fresh": float(fresh),
            "cost_tokens_cached": float(cached),
            "cost_tokens_out": float(out),
            "cost_per_million_tokens_in": _per(both, counts.tokens_in, MILLION),
            "cost_per_million_tokens_fresh": _per(fresh, counts.fresh_tokens, MILLION),
            "cost_per_million_tokens_cached": _per(cached, hits, MILLION),
            "cost_per_million_tokens_out": _per(out, counts.tokens_out, MILLION),
            "cached_share": None if hits is None else _per(hits, counts.tokens_in),
            # What cached tokens would have cost in addition at the price of fresh ones.
            "cost_cache_saved": per_fresh * hits - float(cached)
            if per_fresh is not None and hits
            else None,
            "token_split": None if self.tokens is None else self.tokens.split,
        }

    def _energy_figures(self) -> dict[str, FieldValue | None]:
        drawn, counts, tokens = self.drawn, self.counts, self.tokens
        if drawn is None:
            return {}
        in_j = drawn.energy_j * tokens.tokens_in if tokens and counts.tokens_in else None
        out_j = drawn.energy_j * tokens.tokens_out if tokens and counts.tokens_out else None
        return {
            "energy_j": drawn.energy_j,
            "energy_tokens_in_j": in_j,
            "energy_tokens_out_j": out_j,
            "energy_per_inference_j": _per(drawn.energy_j, counts.inferred),
            "energy_per_request_j": _per(drawn.energy_j, counts.requests),
            "energy_per_million_tokens_in_j": _per(in_j, counts.tokens_in, MILLION),
            "energy_per_million_tokens_out_j": _per(out_j, counts.tokens_out, MILLION),
            "metered_inferences": counts.inferred,
            "metered_requests": counts.requests,
            "metered_tokens_in": counts.tokens_in,
            "metered_tokens_out": counts.tokens_out,
            "energy_method": drawn.method,
            "energy_rel_err": drawn.rel_err,
            "energy_scope": "parent" if drawn.scope == "parent" else None,
            "energy_suspect": drawn.suspect,
        }

    def _carbon_figures(self) -> dict[str, FieldValue | None]:
        emitted, inferred = self.emitted, self.counts.inferred
        if emitted is None or (inferred is None and self.role == "all"):
            return {}
        return {
            "carbon_per_inference_g": _per(emitted.g, inferred),
            "carbon_g": emitted.g,
            "carbon_inferences": inferred,
            "carbon_method": emitted.method,
        }


def _per(amount: Decimal | float | None, count: float | None, per: int = 1) -> float | None:
    if amount is None or not count:
        return None
    return (
        float(amount * per / exact(count)) if isinstance(amount, Decimal) else amount * per / count
    )


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
    share: float
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
    counted_share: float | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """A window of a service: all that its rows and its JSON state.

    Attributes:
        window: Its counts.
        devices: Names of its devices.
        time_ns: UTC in ns of its end.
        plan: Kinds of the price plans in force.
        currency: ISO 4217 code; empty without a price.
        busy_share: Share of the window in which its devices were busy; None if unknown.
        total: Cost of the whole service; None if the window is incomplete.
        models: Cost of its models, if it serves several; they sum to the total.
        model_split: Basis of the division among the models.
        tenants: The cost by tenant; None without tenants or cost.
        rolled: Rolling cost of the service in currency per inference, and the share of each rolling
            window that complete windows cover, under the names of the series.
        problems: Reasons why the window is incomplete.
    """

    window: ServedWindow
    devices: tuple[str, ...]
    time_ns: int = 0
    plan: str = ""
    currency: str = ""
    busy_share: float | None = None
    total: ServedCost | None = None
    models: tuple[ServedCost, ...] = ()
    model_split: ModelSplit = "alone"
    tenants: TenantSplit | None = None
    rolled: Mapping[str, float | None] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[str, ...] = ()

    @property
    def slo(self) -> tuple[SloShare, ...]:
        """The requests within each bound of the service level, with the cost by them."""
        if self.total is None or self.total.role != "all":
            return self.window.slo
        cost = float(self.total.cost)
        return tuple(
            replace(one, cost_per_request_met=_per(cost, one.requests_met))
            for one in self.window.slo
        )

    @property
    def length_s(self) -> float:
        """Length of the window in s."""
        return (self.window.end_ns - self.window.start_ns) / NS_PER_S


def service_cost(
    window: ServedWindow,
    devices: Sequence[str],
    bills: Mapping[str, DeviceBill],
    weighing: TokenWeighing,
    time_ns: int = 0,
    role: Role = "all",
) -> ServiceCost:
    """Join a service's counts with the cost, energy and emissions of its devices.

    Args:
        window: What it served.
        devices: Names of its devices.
        bills: What each device cost, by name.
        weighing: Weights of tokens, where their device time is not measured.
        time_ns: UTC in ns of the window's end.
        role: What the service is of its group: a part without servers has no counts.
    """
    own = [bills[name] for name in devices if name in bills]
    problems = list(window.problems)
    for name in devices:
        if name not in bills:
            problems.append(f"the cost of {name} is unknown")
        elif window.service in bills[name].allocation.problems:
            problems.append(bills[name].allocation.problems[window.service])
    counts = window.total
    is_counted = (counts.tokens_in, counts.tokens_out) != (None, None)
    is_uncounted = role != "all" and not window.readings
    if counts.requests is None and (window.missing or not is_counted) and not is_uncounted:
        problems += window.missing or ("neither its requests nor its tokens are counted",)
    found = ServiceCost(
        window,
        tuple(devices),
        time_ns,
        plan="+".join(dict.fromkeys(bill.plan for bill in own if bill.plan)),
        currency=next((bill.currency for bill in own if bill.currency), ""),
        busy_share=busy_share(devices, bills),
        problems=tuple(dict.fromkeys(problems)),
    )
    if problems:
        return found
    total = _total(window, own, weighing, role)
    models, split = _divided_among_models(total, window.models, weighing)
    tenants = None if window.tenants is None else tenant_split(total, window.tenants)
    return replace(found, total=total, models=models, model_split=split, tenants=tenants)


def busy_share(devices: Sequence[str], bills: Mapping[str, DeviceBill]) -> float | None:
    """Return the mean share of the window in which devices were busy; None if one is unknown."""
    known = [bill.busy_share for name in devices if (bill := bills.get(name)) is not None]
    shares = [share for share in known if share is not None]
    return sum(shares) / len(shares) if len(shares) == len(devices) else None


def _total(
    window: ServedWindow, bills: Sequence[DeviceBill], weighing: TokenWeighing, role: Role
) -> ServedCost:
    """Return the cost of the whole service, and its share of what its devices drew and emitted."""
    service = window.service
    lines = [line for bill in bills for line in bill.allocation.lines if line.service == service]
    is_known = all(line.part != "held" for line in lines)
    shares = [bill.energy_shares.get(service) for bill in bills]
    drawn = [
        replace(bill.drawn, energy_j=bill.drawn.energy_j * share, idle_power_w=None)
        for bill, share in zip(bills, shares, strict=True)
        if bill.drawn is not None and share is not None
    ]
    emitted = [
        Emission(bill.emitted.g * share, bill.emitted.method)
        for bill, share in zip(bills, shares, strict=True)
        if bill.emitted is not None and share is not None
    ]
    is_emitted = len(emitted) == len(bills)
    return ServedCost(
        model="",
        counts=window.total,
        hardware=total_of([line.hardware for line in lines]),
        energy=total_of([line.energy for line in lines]),
        idle=total_of([line.cost for line in lines if line.part == "idle"]) if is_known else None,
        tokens=_of_role(token_shares(window.models, weighing), role),
        device_s=math.fsum(line.device_s for line in lines),
        device_busy_s=math.fsum(line.device_s for line in lines if line.part == "busy")
        if is_known
        else None,
        drawn=energy_sum(drawn) if len(drawn) == len(bills) else None,
        emitted=Emission(sum(one.g for one in emitted), emitted[0].method) if is_emitted else None,
        role=role,
    )


def _of_role(shares: TokenShares | None, role: Role) -> TokenShares | None:
    """Return the division of a service with a role: a pool of prefill or decode has one kind of tokens."""
    if shares is None or role not in ("prefill", "decode"):
        return shares
    if role == "decode":
        return TokenShares("role", 0.0, 1.0)
    return TokenShares("role", 1.0, 0.0, shares.cached and shares.cached / shares.tokens_in)


def _divided_among_models(
    total: ServedCost, models: Mapping[str, Counts], weighing: TokenWeighing
) -> tuple[tuple[ServedCost, ...], ModelSplit]:
    """Divide a service's cost among its models by their work."""
    named = {model: counts for model, counts in models.items() if model}
    if len(named) <= 1:
        return (), "alone"
    weights, split = _model_weights(named, weighing)
    shares = [weight / sum(weights) for weight in weights]
    hardware, energy = divided(total.hardware, weights), divided(total.energy, weights)
    idle = None if total.idle is None else divided(total.idle, weights)
    drawn, emitted = total.drawn, total.emitted
    return tuple(
        ServedCost(
            model,
            counts,
            hardware[i],
            energy[i],
            None if idle is None else idle[i],
            share,
            _of_role(token_shares({model: counts}, weighing), total.role),
            total.device_s * share,
            total.device_busy_s and total.device_busy_s * share,
            drawn and replace(drawn, energy_j=drawn.energy_j * share),
            emitted and replace(emitted, g=emitted.g * share),
            total.role,
        )
        for i, ((model, counts), share) in enumerate(zip(named.items(), shares, strict=True))
    ), split


def _model_weights(
    models: Mapping[str, Counts], weighing: TokenWeighing
) -> tuple[list[float], ModelSplit]:
    """Return weights of models by a measure that is known of all; a batch counts once in it.

    Only the last ways count a batch several times, or nothing at all: they are assumptions.
    """
    counts = models.values()
    ways: tuple[tuple[ModelSplit, list[float | None]], ...] = (
        ("time", [each.work_s for each in counts]),
        ("tokens", [_weighted_tokens(*each, weighing) for each in models.items()]),
        ("executions", [each.execution_s for each in counts]),
        ("assumed", [each.compute_request_s for each in counts]),
        ("assumed", [each.inferred for each in counts]),
    )
    for split, values in ways:
        known = [value for value in values if value is not None]
        if len(known) == len(values) and sum(known) > 0:
            return known, split
    return [1.0] * len(models), "assumed"


def token_shares(models: Mapping[str, Counts], weighing: TokenWeighing) -> TokenShares | None:
    """Divide between prompt and generated tokens: by calibration or device time, else by weights.

    The part of the prompt tokens is divided between fresh and cached ones by weights in any case.
    """
    total = summed(list(models.values()))
    # A kind without tokens has no cost per token: the other kind bears the whole cost.
    reads, writes = bool(total.tokens_in), bool(total.tokens_out)
    if not (reads or writes):
        return None
    weighted = [_weighted_parts(model, counts, weighing) for model, counts in models.items()]
    fresh, cached, out = (sum(parts) for parts in zip(*weighted, strict=True))
    split: TokenSplit = "weights" if weighing.calibrated is None else "calibrated"
    parts = fresh + cached, out
    timed = total.prefill_s or 0.0, total.decode_s or 0.0
    if split == "weights" and all(map(_is_measured, models.values())) and sum(timed) > 0:
        split, parts = "measured", timed
    shares = (parts[0] * reads, parts[1] * writes)
    if not sum(shares):
        shares = float(reads), float(writes)
    # Of all models together none may be fresh, though one counts more hits than tokens.
    fresh = fresh if total.fresh_tokens else 0.0
    if not fresh + cached:
        fresh, cached = total.fresh_tokens or 0.0, total.cached_tokens or 0.0
    tokens_in, tokens_out = (share / sum(shares) for share in shares)
    of_cached = cached / (fresh + cached) if fresh + cached else 0.0
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


def tenant_split(total: ServedCost, counted: ServedWindow) -> TenantSplit:
    """Divide a service's cost among its tenants.

    Args:
        total: Cost and counts of the service in a window.
        counted: Counts of the same window by tenant, in place of models.
    """
    tenants = {name: counts for name, counts in counted.models.items() if name}
    weights = _weights(total, tenants)
    problems = counted.problems or counted.missing
    counts = [getattr(each, kind) for each in tenants.values() for kind in KINDS]
    if not problems and not weights and any(counts):
        problems = ("the service counts none of what its tenants' counters count",)
    if problems:
        tenants = {}
    shares = {name: _weighed(counts, weights) for name, counts in tenants.items()}
    counted_share = math.fsum(shares.values())
    if abs(counted_share - 1) < _ROUNDING:
        counted_share = 1.0
    rest = max(0.0, 1 - counted_share)
    shares[UNATTRIBUTED] = shares.get(UNATTRIBUTED, 0.0) + rest
    names = sorted(shares, key=lambda name: (name == UNATTRIBUTED, -shares[name], name))
    costs = divided(total.cost, [shares[name] for name in names])
    named = {name: counts for name, counts in tenants.items() if name != UNATTRIBUTED}
    known = {**named, UNATTRIBUTED: _remaining(total.counts, named)}
    saved = _divided_by_hits(total, known)
    return TenantSplit(
        tuple(
            TenantCost(
                name, cost, shares[name] / (counted_share + rest), known[name], saved.get(name)
            )
            for name, cost in zip(names, costs, strict=True)
        ),
        counted_share if weights and not problems else None,
        tuple(problems),
    )


def _divided_by_hits(total: ServedCost, counts: Mapping[str, Counts]) -> dict[str, float]:
    """Divide what the cache saved among tenants by their cached tokens, as far as these are counted."""
    saved = total.figures().get("cost_cache_saved")
    hits = {
        name: each.cached_tokens for name, each in counts.items() if each.cached_tokens is not None
    }
    whole = math.fsum(hits.values())
    if not isinstance(saved, float) or not whole:
        return {}
    return {name: saved * cached / whole for name, cached in hits.items()}


def _weights(total: ServedCost, tenants: Mapping[str, Counts]) -> dict[str, float]:
    """Return the share of the cost that one token, or one request, of each kind bears."""
    known = {
        kind
        for kind in ("fresh_tokens", *KINDS)
        if (getattr(total.counts, kind) or 0.0) > LEAST_COUNT
        and any(getattr(counts, kind) is not None for counts in tenants.values())
    }
    shares: dict[str, float] = {}
    if (tokens := total.tokens) is not None:
        shares = {"tokens_in": tokens.tokens_in}
        # A server that does not report its hits to the gateway has no cached tokens there.
        if "cached_tokens" in known and any(counts.cached_tokens for counts in tenants.values()):
            shares = {"fresh_tokens": tokens.fresh, "cached_tokens": tokens.cached}
        shares["tokens_out"] = tokens.tokens_out
    shares = {kind: share for kind, share in shares.items() if kind in known}
    if not any(shares.values()):
        shares = {"requests": 1.0} if "requests" in known else {}
    whole = sum(shares.values())
    return {kind: share / whole / getattr(total.counts, kind) for kind, share in shares.items()}


def _weighed(counts: Counts, weights: Mapping[str, float]) -> float:
    return sum(weight * (getattr(counts, kind) or 0.0) for kind, weight in weights.items())


def _remaining(counts: Counts, tenants: Mapping[str, Counts]) -> Counts:
    """Return the service's counts without those of the tenants, never below 0."""
    left: dict[str, float] = {}
    for kind in KINDS:
        whole = getattr(counts, kind)
        if whole is not None:
            attributed = sum(getattr(each, kind) or 0.0 for each in tenants.values())
            left[kind] = max(0.0, whole - attributed)
    return Counts(**left)


class RollingRatio:
    """The complete windows of the last week of one service."""

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float, float, float]] = deque(maxlen=MAX_SAMPLES)

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the end of the last window; 0 before the first."""
        return self._windows[-1][0] if self._windows else 0

    def add(self, time_ns: int, duration_s: float, cost: float, inferred: float) -> None:
        """Add a complete window.

        Args:
            time_ns: UTC in ns of its end.
            duration_s: Its length in seconds.
            cost: Its cost in currency, idle time included.
            inferred: Number of inferences; may be 0.
        """
        self._windows.append((time_ns, duration_s, cost, inferred))

    def summaries(self, now_ns: int) -> dict[str, float | None]:
        """Return the figures of each rolling window that ends at UTC now_ns and contains a window."""
        figures: dict[str, float | None] = {}
        for name, window_s in WINDOWS_S.items():
            since_ns = now_ns - window_s * NS_PER_S
            inside = [window for window in self._windows if since_ns < window[0] <= now_ns]
            if inside:
                _, lengths_s, costs, inferred = zip(*inside, strict=True)
                count = sum(inferred)
                figures[f"rolling_{name}"] = sum(costs) / count if count > 0 else None
                figures[f"rolling_{name}_coverage"] = min(1.0, sum(lengths_s) / window_s)
        return figures
