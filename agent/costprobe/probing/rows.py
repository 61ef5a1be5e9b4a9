"""A measured and priced probe run, or a start of its model: as rows of the series and as JSON.

Energy per inference is measured, or carried over from an earlier run. Price terms are written as
JSON here as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, Literal

from costprobe.adapters.probe_child.results import ModelStart, NaiveTiming
from costprobe.core.records import (
    SOFTWARE_TAGS,
    CostSample,
    Energy,
    EnergyMethod,
    EnergyScope,
    FieldValue,
    Point,
    ProbeResult,
    present,
)
from costprobe.core.schema import SCHEMA, make_point
from costprobe.core.statistics import Rolled
from costprobe.pricing.book import Terms
from costprobe.pricing.electricity import Emission
from costprobe.probing.roofline import UNKNOWN_LIMIT, PassLimit

MILLION = 1_000_000
# Fields of a latency; a percentile that too few samples support is None.
LATENCIES = ("latency_p50_ms", "latency_mean_ms", "latency_cv", "latency_p90_ms", "latency_p99_ms")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")

# Whether the files that a start reads were in the page cache.
PageCache = Literal["warm", "cold"]


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

    def fields(self) -> dict[str, FieldValue | None]:
        """The energy fields of the `probe` series."""
        return {
            "energy_per_inference_j": self.per_inference_j,
            "energy_above_idle_j": self.above_idle_j,
            "energy_method": self.method,
            "energy_rel_err": self.rel_err,
            "energy_scope": None if self.scope == "device" else self.scope,
            "energy_suspect": self.suspect,
        }


def energy_per_inference(energy: Energy, result: ProbeResult) -> ProbeEnergy:
    """Divide the energy of a steady-state window by its inferences."""
    above_idle_j = None
    if energy.idle_power_w is not None:
        above_j = energy.energy_j - energy.idle_power_w * result.window_s
        # Energy below idle power cannot be attributed to the probe.
        above_idle_j = above_j / result.inferences if above_j > 0 else None
    return ProbeEnergy(
        per_inference_j=energy.energy_j / result.inferences,
        above_idle_j=above_idle_j,
        method=energy.method,
        rel_err=energy.rel_err,
        scope=energy.scope,
        suspect=energy.suspect,
    )


@dataclass(frozen=True, slots=True)
class KnownEnergy:
    """The last measured energy per inference of a probe on a device.

    A run without an energy window is priced with it if batch and fingerprint are the same.

    Attributes:
        batch: Items per forward pass of the measured run.
        fingerprint: Hash of its software and model.
        energy: Its joules per inference.
    """

    batch: int
    fingerprint: str
    energy: ProbeEnergy

    def for_run(self, result: ProbeResult) -> ProbeEnergy | None:
        """Return the energy for a run without an energy window; None if batch or software differ."""
        if (self.batch, self.fingerprint) != (result.batch, result.fingerprint):
            return None
        return replace(self.energy, method="last_known")


def latency_fields(result: ProbeResult) -> dict[str, float]:
    """Return the latencies of a result under the names of the series: `latency_p50_ms` in ms."""
    return {
        f"latency_{name}" if name == "cv" else f"latency_{name}_ms": value
        for name, value in result.latency_ms.items()
    }


def probe_point(
    result: ProbeResult,
    energy: ProbeEnergy | None,
    activity: Mapping[str, FieldValue | None],
    tags: Mapping[str, str],
    time_ns: int,
    limit: PassLimit = UNKNOWN_LIMIT,
) -> Point:
    """Return a row of `probe`.

    Args:
        result: Result of the probe.
        energy: Joules per inference, with method and uncertainty; None if unknown.
        activity: Conditions of the device in the steady-state window, as fields; only known ones.
        tags: Host and static labels.
        time_ns: UTC in ns of the end of the steady-state window.
        limit: Physical limit of a pass on the board.
    """
    fields: dict[str, FieldValue | None] = {
        **latency_fields(result),
        "samples": result.samples,
        "stop_reason": result.stop_reason,
        "throughput_per_s": result.throughput_per_s,
        "h2d_ms": result.h2d_ms,
        "fingerprint": result.fingerprint,
        "threads": result.threads,
        "latency_rel_err": result.latency_rel_err,
        "outliers": result.outliers,
        **result.fields,
        **token_fields(result, energy),
        **work_fields(result, limit),
        **(energy.fields() if energy else {}),
        **activity,
    }
    # A server chooses its own batches: only the concurrency is known.
    batch = "" if "concurrency" in result.tags else str(result.batch)
    own_tags = {"device": result.device, "probe": result.probe, "batch": batch, **result.tags}
    return make_point("probe", {**tags, **own_tags}, fields, time_ns)


def software_point(result: ProbeResult, tags: Mapping[str, str], time_ns: int) -> Point | None:
    """Return a row of `software`; None if no version is known.

    Only short plain text counts as a version: any other text in a tag could begin a series each run.

    Args:
        result: Result of the probe.
        tags: Host and static labels.
        time_ns: UTC in ns of the end of the steady-state window.
    """
    known = {
        tag: value
        for tag, key in SOFTWARE_TAGS.items()
        if _VERSION.fullmatch(value := result.software.get(key, ""))
    }
    if not known:
        return None
    own_tags = {"device": result.device, "probe": result.probe, **known}
    return make_point("software", {**tags, **own_tags}, {"probe_runs": 1}, time_ns)


def cost_point(  # noqa: PLR0913 - what a row holds
    cost: CostSample,
    result: ProbeResult,
    rolled: Mapping[str, Rolled],
    energy_method: EnergyMethod | None,
    tags: Mapping[str, str],
    time_ns: int,
    *,
    emitted: Emission | None = None,
    contended: bool | None = None,
) -> Point:
    """Return a row of `cost` on the probe basis.

    Args:
        cost: The priced sample.
        result: Result of the probe.
        rolled: Summaries of the rolling windows, by name.
        energy_method: How the energy was measured; a field if cost or emissions include energy.
        tags: Host and static labels.
        time_ns: UTC in ns of the end of the steady-state window.
        emitted: Emissions per inference; None if unknown.
        contended: Whether others used the device during the run; None where unknown.
    """
    fields: dict[str, FieldValue | None] = {
        **cost_fields(cost, result),
        "price_stale": cost.is_stale or None,
        "contended": contended,
        "energy_method": energy_method if cost.energy or emitted else None,
        "carbon_per_inference_g": emitted.g if emitted else None,
        "carbon_method": emitted.method if emitted else None,
    }
    for name, summary in rolled.items():
        fields |= rolled_fields(name, summary)
    own_tags = {
        "device": result.device,
        "probe": result.probe,
        "basis": "probe",
        "plan": cost.plan,
        "currency": cost.currency,
    }
    return make_point("cost", {**tags, **own_tags}, fields, time_ns)


def token_fields(result: ProbeResult, energy: ProbeEnergy | None) -> dict[str, float | None]:
    """Return rates and energy of a run's tokens under the names of the series; None where unknown.

    Args:
        result: Result of the probe.
        energy: Joules per inference; None if unknown.
    """
    fields: dict[str, float | None] = {
        "tokens_in_per_s": result.tokens_in_per_s,
        "tokens_out_per_s": result.tokens_out_per_s,
    }
    for name, tokens in (("tokens_in", result.tokens_in), ("tokens_out", result.tokens_out)):
        fields[f"energy_per_million_{name}_j"] = (
            per_million_tokens(energy.per_inference_j, result, tokens) if energy else None
        )
    return fields


def rolled_fields(name: str, rolled: Rolled) -> dict[str, float]:
    """Return the summary of a rolling window under the names of the series; one sample has no range."""
    return {
        f"rolling_{name}": rolled.median,
        **({f"rolling_{name}_iqr": rolled.iqr} if rolled.samples > 1 else {}),
        f"rolling_{name}_coverage": rolled.coverage,
    }


def cost_fields(cost: CostSample, result: ProbeResult) -> dict[str, float | None]:
    """Return the cost of an inference and of tokens, and those at the physical limit; None where unknown."""
    each = {"cost": cost.per_inference, "cost_roofline": cost.roofline}
    counts = {"in": result.tokens_in, "out": result.tokens_out}
    of_tokens = {
        f"{name}_per_million_tokens_{kind}": None
        if amount is None
        else per_million_tokens(amount, result, tokens)
        for name, amount in each.items()
        for kind, tokens in counts.items()
    }
    return {
        "cost_per_inference": cost.per_inference,
        "cost_hardware": cost.hardware,
        "cost_energy": cost.energy,
        "cost_reference": cost.reference,
        "cost_roofline": cost.roofline,
        **of_tokens,
    }


def work_fields(result: ProbeResult, limit: PassLimit) -> dict[str, FieldValue | None]:
    """Return the work of a pass and the shares of the board's peaks; None where unknown."""
    return {
        "flop_per_pass": result.flop_per_pass,
        "bytes_per_pass": result.bytes_per_pass,
        **limit.fields(),
    }


def per_million_tokens(
    per_inference: float, result: ProbeResult, tokens: float | None
) -> float | None:
    """Return the whole cost, or energy, of the inferences per million tokens of one kind.

    Of a request to a server, the figures of input and of output tokens both contain the whole
    request and must not be added: the shares of prefill and decode cannot be measured by a client.

    Args:
        per_inference: Cost or energy of an inference.
        result: Result of the probe.
        tokens: Tokens of that kind in the window.
    """
    return per_inference * result.inferences / tokens * MILLION if tokens else None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A probe's result, joined with the sensor data of its steady-state window.

    Attributes:
        result: Result of the probe.
        energy: The device's energy in the window; None if unknown.
        energy_absent: Reason why it is unknown.
        activity: Conditions of the device in the window, as fields; only known ones.
        every_s: Seconds between runs.
        curve: Points of a batch search; empty if there was none.
        board: Permanent identity of the board, or of several boards in order; empty if there is none.
        naive: What common mistakes of timing report; empty if not asked for.
        load: Figures that only a point of a load curve has.
        limit: Physical limit of a pass on the board.
    """

    result: ProbeResult
    energy: Energy | None
    energy_absent: str
    activity: Mapping[str, FieldValue | None]
    every_s: float
    curve: Sequence[Mapping[str, float]] = ()
    board: str = ""
    naive: Sequence[NaiveTiming] = ()
    load: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    limit: PassLimit = UNKNOWN_LIMIT


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """A priced probe run, from which the log line and the CLI's JSON are formatted.

    Attributes:
        result: Result of the probe.
        energy: Joules per inference; None if unknown.
        energy_absent: Reason why they are unknown.
        cost: Currency per inference; None if unknown.
        terms: The price terms in force; None without a price.
        rolled: Summaries of the rolling windows, by name.
        points: The rows of `probe` and `cost`.
        time_ns: UTC in ns of the window's end.
        emitted: Grams of CO2-equivalent per inference; None if unknown.
        contended: Whether others used the device during the run; None where unknown.
        limit: Physical limit of a pass on the board.
    """

    result: ProbeResult
    energy: ProbeEnergy | None
    energy_absent: str
    cost: CostSample | None
    terms: Terms | None
    rolled: Mapping[str, Rolled]
    points: tuple[Point, ...]
    time_ns: int
    emitted: Emission | None = None
    contended: bool | None = None
    limit: PassLimit = UNKNOWN_LIMIT


def report_document(report: ProbeReport) -> dict[str, Any]:
    """Return a probe report as JSON, as `costprobe status --json` and `probe --json` print it.

    Args:
        report: The report of a probe run.
    """
    result, energy, cost, terms = report.result, report.energy, report.cost, report.terms
    document: dict[str, Any] = {
        "time_ns": report.time_ns,
        "device": result.device,
        "probe": result.probe,
        "batch": result.batch,
        **dict.fromkeys(LATENCIES),
        **latency_fields(result),
        "samples": result.samples,
        "stop_reason": result.stop_reason,
        "throughput_per_s": result.throughput_per_s,
        "h2d_ms": result.h2d_ms,
        "latency_rel_err": result.latency_rel_err,
        "outliers": result.outliers,
        "contended": report.contended,
        "threads": result.threads,
        "tags": dict(result.tags),
        "fields": present(
            {
                **result.fields,
                **token_fields(result, energy),
                **work_fields(result, report.limit),
            }
        ),
        "fingerprint": result.fingerprint,
        "software": dict(result.software),
        "energy": None,
        "energy_absent": report.energy_absent or None,
        "cost": None,
        "price": None,
        "carbon": None,
        "rolling": {},
    }
    if energy is not None:
        document["energy"] = {**energy.fields(), "energy_scope": energy.scope}
    if report.emitted is not None:
        document["carbon"] = {
            "carbon_per_inference_g": report.emitted.g,
            "carbon_method": report.emitted.method,
        }
    if terms is not None:
        document["price"] = terms_document(terms)
    if cost is not None:
        document["cost"] = {
            "currency": cost.currency,
            **cost_fields(cost, result),
        }
        for name, rolled in report.rolled.items():
            document["rolling"] |= {
                **rolled_fields(name, rolled),
                f"rolling_{name}_samples": rolled.samples,
            }
    return document


def terms_document(terms: Terms) -> dict[str, Any]:
    """Return price terms as JSON."""
    return {
        "plan": terms.rate.plan,
        "price_rate_per_h": str(terms.rate.per_hour),
        "price_rate_low_per_h": optional_text(terms.rate.low_per_hour),
        "price_rate_high_per_h": optional_text(terms.rate.high_per_hour),
        "currency": terms.rate.currency,
        "source": terms.rate.source,
        "electricity_included": terms.rate.electricity_included,
    }


def optional_text(amount: Decimal | None) -> str | None:
    """Return an exact amount as JSON has it; None for none."""
    return None if amount is None else str(amount)


def start_point(
    start: ModelStart,
    cache: PageCache,
    tags: Mapping[str, str],
    time_ns: int,
) -> Point:
    """Return the row of a start.

    Args:
        start: The start.
        cache: State of the page cache.
        tags: `device`, `probe`, host and static labels.
        time_ns: UTC in ns of the first answer.
    """
    fields = {name: getattr(start, name) for name in SCHEMA["cold_start"].fields}
    return make_point("cold_start", {**tags, "cache": cache}, fields, time_ns)
