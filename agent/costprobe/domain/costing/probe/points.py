"""Measurements and costs of probes as rows of the series."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from costprobe.core.records import (
    CostSample,
    EnergyMethod,
    FieldValue,
    Point,
    ProbeResult,
)
from costprobe.core.schema import make_point
from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.probe.energy import ProbeEnergy
from costprobe.domain.costing.probe.rolling import Rolled
from costprobe.domain.costing.probe.software_tags import SOFTWARE_TAGS

MILLION = 1_000_000
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")


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
) -> Point:
    """Return a row of `probe`.

    Args:
        result: Result of the probe.
        energy: Joules per inference, with method and uncertainty; None if unknown.
        activity: Conditions of the device in the steady-state window, as fields; only known ones.
        tags: Host and static labels.
        time_ns: UTC in ns of the end of the steady-state window.
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
        "cost_per_inference": cost.per_inference,
        "cost_hardware": cost.hardware,
        "cost_energy": cost.energy,
        "cost_reference": cost.reference,
        "price_stale": cost.is_stale or None,
        "contended": contended,
        "energy_method": energy_method if cost.energy or emitted else None,
        "carbon_per_inference_g": emitted.g if emitted else None,
        "carbon_method": emitted.method if emitted else None,
        "cost_per_million_tokens_in": per_million_tokens(
            cost.per_inference, result, result.tokens_in
        ),
        "cost_per_million_tokens_out": per_million_tokens(
            cost.per_inference, result, result.tokens_out
        ),
    }
    for name, summary in rolled.items():
        fields[f"rolling_{name}"] = summary.median
        fields[f"rolling_{name}_iqr"] = summary.iqr
        fields[f"rolling_{name}_coverage"] = summary.coverage
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
