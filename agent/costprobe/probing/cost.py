"""One priced run of a probe: its cost, energy and emissions per inference, and what changed since the last.

Source: docs/cost.md: (∫ r dt + tariff x PUE x E / 3.6e6) / N over the steady-state window, with r
in currency per device-second, E in joules and N inferences.

`account_run` completes the record of a run and returns its events and the state for the next run: it
adds price, emissions and rolling cost, and compares price, tariff, software and board with those of
earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from costprobe.adapters.probe_child.results import ProbeResult
from costprobe.core.records import (
    BATCH,
    BOARD,
    Energy,
    EnergyMethod,
    EnergyScope,
    Event,
    FieldValue,
)
from costprobe.core.statistics import Rolled, RollingCosts, RollingSample, quantile
from costprobe.pricing.book import Prices, Terms, price_events
from costprobe.pricing.electricity import Emission, emission
from costprobe.probing.roofline import UNKNOWN_LIMIT, PassLimit


@dataclass(frozen=True, slots=True)
class ProbeEnergy:
    """Joules per inference with their method and uncertainty.

    Attributes:
        per_inference_j: Gross joules per inference, idle power included.
        above_idle_j: Joules per inference above idle power; None until idle power is measured.
        method: How the energy was measured; `last_known` if it is that of an earlier run.
        rel_err: Relative uncertainty of per_inference_j.
        scope: What it covers, as in `Energy`.
        suspect: True if energy counter and power disagree; None until they were compared.
    """

    per_inference_j: float
    above_idle_j: float | None
    method: EnergyMethod
    rel_err: float
    scope: EnergyScope = "device"
    suspect: bool | None = None


@dataclass(frozen=True, slots=True)
class CostSample:
    """Cost of one inference by component, in one currency.

    Attributes:
        currency: ISO 4217 code.
        plan: Kind of the price plan that was in force.
        hardware: Currency per inference for holding the device.
        energy: Currency per inference for electricity that the plan does not include.
        reference: Cost of the same sample at the baseline price.
        is_stale: Whether the price is a stale spot price.
        roofline: Cost if a pass took no longer than the board's physical limit, with the same
            electricity; None where the limit is unknown.
    """

    currency: str
    plan: str
    hardware: float
    energy: float
    reference: float
    is_stale: bool = False
    roofline: float | None = None

    @property
    def per_inference(self) -> float:
        """Currency per inference, all components."""
        return self.hardware + self.energy


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun(ProbeResult):
    """A probe's result with what the sensors measured in its window, and once it is priced what it cost.

    Attributes:
        every_s: Seconds between runs.
        board: Permanent identity of the board, or of several boards in order; empty if there is none.
        limit: Physical limit of a pass on the board.
        activity: Conditions of the device in the window, as fields; only known ones.
        window_energy: The device's energy in the window; None if unknown.
        energy_absent: Reason why it is unknown.
        time_ns: UTC in ns of the window's end.
        latency_spread: Half of the range of the medians of the last runs, relative; None if too few.
        energy: Joules per inference; None if unknown.
        terms: The price terms in force; None without a price.
        cost: Currency per inference; None if unknown.
        rolled: Summaries of the rolling windows, by name.
        emitted: Grams of CO2-equivalent per inference; None if unknown.
    """

    every_s: float
    board: str = ""
    limit: PassLimit = UNKNOWN_LIMIT
    activity: Mapping[str, FieldValue | None] = field(default_factory=lambda: MappingProxyType({}))
    window_energy: Energy | None = None
    energy_absent: str = ""
    time_ns: int = 0
    latency_spread: float | None = None
    energy: ProbeEnergy | None = None
    terms: Terms | None = None
    cost: CostSample | None = None
    rolled: Mapping[str, Rolled] = field(default_factory=lambda: MappingProxyType({}))
    emitted: Emission | None = None

    @property
    def contended(self) -> bool | None:
        """Whether others used the device during the run; None where unknown."""
        contended = self.activity.get("contended")
        return None if contended is None else bool(contended)


def energy_per_inference(run: ProbeRun) -> ProbeEnergy | None:
    """Divide the energy of a steady-state window by its inferences; None if it is unknown."""
    energy = run.window_energy
    if energy is None:
        return None
    above_idle_j = None
    if energy.idle_power_w is not None:
        above_j = energy.energy_j - energy.idle_power_w * run.window_s
        # Energy below idle power cannot be attributed to the probe.
        above_idle_j = above_j / run.inferences if above_j > 0 else None
    return ProbeEnergy(
        per_inference_j=energy.energy_j / run.inferences,
        above_idle_j=above_idle_j,
        method=energy.method,
        rel_err=energy.rel_err,
        scope=energy.scope,
        suspect=energy.suspect,
    )


def cost_sample(
    terms: Terms,
    reference: Terms,
    device_s: float,
    energy_j: float | None,
    roofline_share: float | None = None,
) -> CostSample | None:
    """Return the cost of one inference.

    A window lasts seconds and plans change at midnight, so the rate is assumed to be constant and
    the integral is a product.

    Args:
        terms: The terms in force during the window.
        reference: The terms in force when the baseline started.
        device_s: Seconds of an inference.
        energy_j: Joules of one; None if unknown.
        roofline_share: Least time of a pass on the board over the measured one; None if unknown.

    Returns:
        None if electricity is paid separately and the energy is unknown: a cost without electricity
        would look like a saving.
    """
    hardware = terms.per_s * device_s
    energy, before = (_electricity(each, energy_j) for each in (terms, reference))
    if energy is None or before is None:
        return None
    return CostSample(
        currency=terms.rate.currency,
        plan=terms.rate.plan,
        hardware=hardware,
        energy=energy,
        reference=reference.per_s * device_s + before,
        is_stale=terms.rate.is_stale,
        roofline=None if roofline_share is None else roofline_share * hardware + energy,
    )


def _electricity(terms: Terms, energy_j: float | None) -> float | None:
    if terms.electricity_per_j == 0.0:
        return 0.0
    return None if energy_j is None else terms.electricity_per_j * energy_j


# Runs that the spread between runs is computed from, and the fewest for it.
SPREAD_RUNS = 50
SPREAD_RUNS_MIN = 10


@dataclass(frozen=True, slots=True)
class Platform:
    """Software and board that a probe ran on.

    Attributes:
        fingerprint: Hash of software and model.
        software: Names and versions that the fingerprint is computed from.
        board: Permanent identity of the board; empty if there is none.
        batch: Items of a forward pass; 0 if unknown.
    """

    fingerprint: str
    software: Mapping[str, str]
    board: str
    batch: int = 0


@dataclass(frozen=True, slots=True)
class ProbeState:
    """State of a probe on one device between two runs.

    Attributes:
        reference: The terms of its first priced run in its currency; None before.
        platform: Software and board of the last run; None before the first run.
        measured: The last run whose energy was measured; None before the first.
        costs: Rolling costs per inference in `currency`; None before the first.
        currency: ISO 4217 code of `costs`.
        medians_ms: Median latencies of the last runs with the same software, board and batch.
    """

    reference: Terms | None = None
    platform: Platform | None = None
    measured: ProbeRun | None = None
    costs: RollingCosts | None = None
    currency: str = ""
    medians_ms: tuple[float, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the state as JSON, without the costs, which are read from the stored rows."""
        platform = self.platform
        return {
            "reference": None if self.reference is None else self.reference.to_document(),
            "platform": None if platform is None else asdict(platform),
            "medians_ms": list(self.medians_ms),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ProbeState:
        """Return the state that `document` wrote."""
        reference, platform = document["reference"], document["platform"]
        return cls(
            reference=None if reference is None else Terms.from_document(reference),
            platform=None if platform is None else Platform(**platform),
            medians_ms=tuple(document.get("medians_ms", ())),
        )


class AccountedRun(NamedTuple):
    """Result of accounting for a run.

    Attributes:
        run: The run, complete.
        events: Changes of price, software or board.
        state: State for the next run of the probe on the device.
    """

    run: ProbeRun
    events: tuple[Event, ...]
    state: ProbeState


def account_run(run: ProbeRun, prices: Prices, before: ProbeState, time_ns: int) -> AccountedRun:
    """Return a measured run with its cost, its events and the next state.

    Args:
        run: The run.
        prices: Prices of its device at its end.
        before: The state after the previous run. Its `costs` must be in the currency of
            `prices.terms`.
        time_ns: UTC in ns of the end of the steady-state window.
    """
    platform = _platform(run, before.platform)
    medians_ms = _medians_ms(run, before, platform)
    energy = energy_per_inference(run) or _last_known(run, before.measured)
    energy_j = None if energy is None else energy.per_inference_j
    terms, reference, windows = prices.terms, before.reference, before.costs
    cost, rolled = None, run.rolled
    if terms is not None:
        if reference is None or reference.rate.currency != terms.rate.currency:
            reference = terms
        device_s = run.inferring_s / run.inferences
        cost = cost_sample(terms, reference, device_s, energy_j, run.limit.cost_share)
    if cost is not None:
        sample = RollingSample(time_ns, cost.per_inference, run.contended is True)
        windows = (windows or RollingCosts.of(run.every_s)).with_sample(sample)
        rolled = windows.summaries(time_ns)
    priced = replace(
        run,
        time_ns=time_ns,
        latency_spread=latency_spread(medians_ms),
        energy=energy,
        terms=terms,
        cost=cost,
        rolled=rolled,
        emitted=emission(energy_j, prices.intensity),
    )
    events = (
        *price_events(run.device, prices.terms_before, terms, time_ns),
        *_platform_events(priced, before.platform, platform),
    )
    state = replace(
        before,
        reference=reference,
        platform=platform,
        measured=before.measured if run.window_energy is None else priced,
        costs=windows,
        medians_ms=medians_ms,
    )
    return AccountedRun(priced, events, state)


def _last_known(run: ProbeRun, measured: ProbeRun | None) -> ProbeEnergy | None:
    """Return the energy of the last measured run with the same batch and software; None without one."""
    if measured is None or measured.energy is None:
        return None
    if (measured.batch, measured.fingerprint) != (run.batch, run.fingerprint):
        return None
    return replace(measured.energy, method="last_known")


def _medians_ms(run: ProbeRun, before: ProbeState, platform: Platform) -> tuple[float, ...]:
    """Return the latencies of the last comparable runs, this one included unless it is contended."""
    earlier = before.medians_ms if before.platform == platform else ()
    return earlier if run.contended else (*earlier, run.latency_ms["p50"])[-SPREAD_RUNS:]


def latency_spread(medians_ms: Sequence[float]) -> float | None:
    """Return half of the range that contains 90 % of runs, relative to their median; None if too few.

    A run's own interval contains what varies within it. What differs from run to run, such as
    clocks, placement and temperature, is only seen in the runs.

    Args:
        medians_ms: Median latencies of runs, in any order.
    """
    if len(medians_ms) < SPREAD_RUNS_MIN:
        return None
    ordered = sorted(medians_ms)
    low, middle, high = (quantile(ordered, share) for share in (0.05, 0.5, 0.95))
    return (high - low) / 2 / middle if middle > 0 else None


def _platform(run: ProbeRun, before: Platform | None) -> Platform:
    """Return software and board of a run; if the board is unknown, that of the previous run."""
    board = run.board or (before.board if before else "")
    return Platform(run.fingerprint, dict(run.software), board, run.batch)


def _platform_events(run: ProbeRun, before: Platform | None, now: Platform) -> list[Event]:
    """Return the event of changed software, another board or another batch, if any changed."""
    if before is None:
        return []
    # A board or a batch that was unknown before has not changed.
    before = replace(before, board=before.board or now.board, batch=before.batch or now.batch)
    if replace(before, software=now.software) == now:
        return []
    old, new = (
        {**each.software, BOARD: each.board, BATCH: str(each.batch)} for each in (before, now)
    )
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    changed_part = (
        f"another {changed[0]}"
        if changed in ([BOARD], [BATCH])
        else f"other software: {', '.join(changed) or 'another fingerprint'}"
    )
    return [
        Event(
            kind="software",
            severity="info",
            title=f"{run.probe} on {run.device} runs on {changed_part}",
            time_ns=run.time_ns,
            detail="latency, energy and cost before and after are not comparable",
            device=run.device,
            subject={"probe": run.probe},
            before=", ".join(f"{key} {old.get(key, 'none')}" for key in changed),
            after=", ".join(f"{key} {new.get(key, 'none')}" for key in changed),
            cause=", ".join(changed),
        )
    ]
