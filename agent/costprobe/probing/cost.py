"""Cost per inference of a probe run, on a device without other load; what changed since the last.

Source: docs/cost.md: (∫ r dt + tariff x PUE x E / 3.6e6) / N over the steady-state window, with r
in currency per device-second, E in joules and N inferences.

`account_run` converts the result of a probe to rows, its events and the state for the next run:
it prices the run, adds its emissions and rolling cost, and compares price, tariff, software and
board with those of earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from costprobe.core.records import BATCH, BOARD, CostSample, Event, Point, ProbeResult
from costprobe.core.schema import event_point
from costprobe.core.statistics import Rolled, RollingCosts, RollingSample, quantile
from costprobe.pricing.book import Prices, Terms, price_events
from costprobe.pricing.electricity import emission
from costprobe.probing.rows import (
    KnownEnergy,
    MeasuredRun,
    ProbeEnergy,
    ProbeReport,
    cost_point,
    energy_per_inference,
    probe_point,
    software_point,
)


def software_event(
    result: ProbeResult, before: Mapping[str, Any], now: Mapping[str, Any], time_ns: int
) -> Event:
    """Return the event of changed software, another board or another batch.

    Args:
        result: The first run after the change.
        before: Names and versions of the previous run's software; its board's identity as BOARD, and
            its batch as BATCH.
        now: The same of this run.
        time_ns: UTC in ns of the end of the steady-state window.
    """
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    changed_part = (
        f"another {changed[0]}"
        if changed in ([BOARD], [BATCH])
        else f"other software: {', '.join(changed)}"
    )
    return Event(
        kind="software",
        severity="info",
        title=f"{result.probe} on {result.device} runs on {changed_part}",
        time_ns=time_ns,
        detail="latency, energy and cost before and after are not comparable",
        device=result.device,
        subject={"probe": result.probe},
        before=", ".join(f"{key} {before.get(key, 'none')}" for key in changed),
        after=", ".join(f"{key} {now.get(key, 'none')}" for key in changed),
        cause=", ".join(changed),
    )


def cost_sample(
    terms: Terms,
    reference: Terms,
    *,
    window_s: float,
    inferences: float,
    energy_per_inference_j: float | None,
    roofline_share: float | None = None,
) -> CostSample | None:
    """Return the cost of one inference in a window.

    A window lasts seconds and plans change at midnight, so the rate is assumed to be constant and
    the integral is a product.

    Args:
        terms: The terms in force during the window.
        reference: The terms in force when the baseline started.
        window_s: Seconds of the window that were spent on inferences.
        inferences: Inferences in the window.
        energy_per_inference_j: Joules per inference; None if unknown.
        roofline_share: Least time of a pass on the board over the measured one; None if unknown.

    Returns:
        None without inferences, or if electricity is paid separately and the energy is unknown: a
        cost without electricity would look like a saving.
    """
    if inferences <= 0 or window_s <= 0:
        return None
    hardware, energy = _split(terms, window_s / inferences, energy_per_inference_j)
    if energy is None:
        return None
    reference_hardware, reference_energy = _split(
        reference, window_s / inferences, energy_per_inference_j
    )
    if reference_energy is None:
        return None
    return CostSample(
        currency=terms.rate.currency,
        plan=terms.rate.plan,
        hardware=hardware,
        energy=energy,
        reference=reference_hardware + reference_energy,
        is_stale=terms.rate.is_stale,
        roofline=None if roofline_share is None else roofline_share * hardware + energy,
    )


def _split(
    terms: Terms, time_per_inference_s: float, energy_per_inference_j: float | None
) -> tuple[float, float | None]:
    hardware = terms.per_s * time_per_inference_s
    if terms.electricity_per_j == 0.0:
        return hardware, 0.0
    if energy_per_inference_j is None:
        return hardware, None
    return hardware, terms.electricity_per_j * energy_per_inference_j


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
        energy: The last measured energy per inference; None before the first.
        costs: Rolling costs per inference in `currency`; None before the first.
        currency: ISO 4217 code of `costs`.
        medians_ms: Median latencies of the last runs with the same software, board and batch.
    """

    reference: Terms | None = None
    platform: Platform | None = None
    energy: KnownEnergy | None = None
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


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """Result of accounting for a run.

    Attributes:
        report: The priced run.
        events: Changes of price, software or board.
        rows: Rows of `probe`, `cost`, `software` and `event`, to be stored together.
        state: State for the next run of the probe on the device.
    """

    report: ProbeReport
    events: tuple[Event, ...]
    rows: tuple[Point, ...]
    state: ProbeState


@dataclass(frozen=True, slots=True)
class _Cost:
    """A priced run and its rolling windows; `sample` is None without a price."""

    sample: CostSample | None = None
    reference: Terms | None = None
    windows: RollingCosts | None = None
    rolled: Mapping[str, Rolled] = field(default_factory=dict)


def account_run(
    run: MeasuredRun, prices: Prices, before: ProbeState, tags: Mapping[str, str], time_ns: int
) -> AccountedRun:
    """Return the rows, the events and the next state of a measured run.

    Args:
        run: The run.
        prices: Prices of its device at its end.
        before: The state after the previous run. Its `costs` must be in the currency of
            `prices.terms`.
        tags: Host and static labels.
        time_ns: UTC in ns of the end of the steady-state window.
    """
    energy, known = _energy(run, before.energy)
    platform = _platform(run, before.platform)
    medians_ms = _medians_ms(run, before, platform)
    spread = latency_spread(medians_ms)
    result = replace(run.result, fields={**run.result.fields, "latency_spread": spread})
    emitted = emission(energy.per_inference_j if energy else None, prices.intensity)
    cost = _priced(run, energy, prices.terms, before, time_ns)
    known_contended = run.activity.get("contended")
    contended = None if known_contended is None else bool(known_contended)
    points = [probe_point(result, energy, run.activity, tags, time_ns, run.limit)]
    if cost.sample is not None:
        method = energy.method if energy else None
        points.append(
            cost_point(
                cost.sample,
                result,
                cost.rolled,
                method,
                tags,
                time_ns,
                emitted=emitted,
                contended=contended,
            )
        )
    events = (
        *price_events(result.device, prices.terms_before, prices.terms, time_ns),
        *_platform_events(result, before.platform, platform, time_ns),
    )
    report = ProbeReport(
        result,
        energy,
        run.energy_absent,
        cost.sample,
        prices.terms,
        cost.rolled,
        tuple(points),
        time_ns,
        emitted,
        contended=contended,
        limit=run.limit,
    )
    software = software_point(result, tags, time_ns)
    state = replace(
        before,
        reference=cost.reference,
        platform=platform,
        energy=known,
        costs=cost.windows,
        medians_ms=medians_ms,
    )
    return AccountedRun(
        report,
        events,
        (
            *points,
            *(() if software is None else (software,)),
            *(event_point(event, tags) for event in events),
        ),
        state,
    )


def _medians_ms(run: MeasuredRun, before: ProbeState, platform: Platform) -> tuple[float, ...]:
    """Return the latencies of the last comparable runs, this one included unless it is contended."""
    earlier = before.medians_ms if before.platform == platform else ()
    if run.activity.get("contended") is True:
        return earlier
    return (*earlier, run.result.latency_ms["p50"])[-SPREAD_RUNS:]


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


def _energy(
    run: MeasuredRun, last_known: KnownEnergy | None
) -> tuple[ProbeEnergy | None, KnownEnergy | None]:
    """Return the run's energy per inference, and the last measured one for the next run."""
    result = run.result
    if run.energy is None:
        return None if last_known is None else last_known.for_run(result), last_known
    energy = energy_per_inference(run.energy, result)
    return energy, KnownEnergy(result.batch, result.fingerprint, energy)


def _priced(
    run: MeasuredRun,
    energy: ProbeEnergy | None,
    terms: Terms | None,
    before: ProbeState,
    time_ns: int,
) -> _Cost:
    """Price a run at the terms in force and at its reference terms."""
    if terms is None:
        return _Cost(reference=before.reference, windows=before.costs)
    reference = before.reference
    if reference is None or reference.rate.currency != terms.rate.currency:
        reference = terms
    sample = cost_sample(
        terms,
        reference,
        window_s=run.result.inferring_s,
        inferences=run.result.inferences,
        energy_per_inference_j=energy.per_inference_j if energy else None,
        roofline_share=run.limit.cost_share,
    )
    if sample is None:
        return _Cost(reference=reference, windows=before.costs)
    windows = before.costs or RollingCosts.of(run.every_s)
    is_contended = run.activity.get("contended") is True
    windows = windows.with_sample(RollingSample(time_ns, sample.per_inference, is_contended))
    return _Cost(sample, reference, windows, windows.summaries(time_ns))


def _platform(run: MeasuredRun, before: Platform | None) -> Platform:
    """Return software and board of a run; if the board is unknown, that of the previous run."""
    board = run.board or (before.board if before else "")
    return Platform(run.result.fingerprint, dict(run.result.software), board, run.result.batch)


def _platform_events(
    result: ProbeResult, before: Platform | None, now: Platform, time_ns: int
) -> list[Event]:
    """Return an event if software, board or batch changed since the previous run."""
    if before is None:
        return []
    # A board or a batch that was unknown before has not changed.
    before = replace(before, board=before.board or now.board, batch=before.batch or now.batch)
    if replace(before, software=now.software) == now:
        return []
    old, new = (
        {**each.software, BOARD: each.board, BATCH: str(each.batch)} for each in (before, now)
    )
    return [software_event(result, old, new, time_ns)]
