"""A priced run of a probe, or a start of its model: as rows of the series and as JSON.

Price terms are written as JSON here as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from costprobe.adapters.probe_child.results import ModelStart, ProbeResult
from costprobe.core.records import SOFTWARE_TAGS, FieldValue, Point, present
from costprobe.core.schema import SCHEMA, make_point
from costprobe.core.statistics import Rolled
from costprobe.pricing.book import Terms
from costprobe.probing.cost import CostSample, ProbeEnergy, ProbeRun

MILLION = 1_000_000
# Fields of a latency; a percentile that too few samples support is None.
LATENCIES = ("latency_p50_ms", "latency_mean_ms", "latency_cv", "latency_p90_ms", "latency_p99_ms")
_PERCENTILES: Final = ("p50", "p90", "p99", "mean")
# Fields of the record under their own names: of a server, and of the passes of a model.
_OF_SERVER: Final = ("tokens_in", "tokens_out", "cached_tokens", "cached", "token_source")
_OF_PASSES: Final = ("pass_low_ms", "pass_high_ms", "unsteady")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")

# Whether the files that a start reads were in the page cache.
PageCache = Literal["warm", "cold"]


def energy_fields(energy: ProbeEnergy | None) -> dict[str, FieldValue | None]:
    """Return the energy fields of the `probe` series; empty if the energy is unknown."""
    if energy is None:
        return {}
    return {
        "energy_per_inference_j": energy.per_inference_j,
        "energy_above_idle_j": energy.above_idle_j,
        "energy_method": energy.method,
        "energy_rel_err": energy.rel_err,
        "energy_scope": None if energy.scope == "device" else energy.scope,
        "energy_suspect": energy.suspect,
    }


def latency_fields(run: ProbeResult) -> dict[str, float]:
    """Return the latencies of a run under the names of the series: `latency_p50_ms` in ms."""
    return {
        f"latency_{name}" if name == "cv" else f"latency_{name}_ms": value
        for name, value in run.latency_ms.items()
    }


def time_fields(name: str, times_ms: Mapping[str, float] | None) -> dict[str, FieldValue | None]:
    """Return the statistics of a time under the names of the series: `ttft_p50_ms`; None where unknown."""
    return {f"{name}_{figure}_ms": (times_ms or {}).get(figure) for figure in _PERCENTILES}


def further_fields(run: ProbeRun) -> dict[str, FieldValue | None]:
    """Return the fields of a run that only some kinds of probe have; None where unknown."""
    return {
        "requests": run.requests,
        **time_fields("ttft", run.ttft_ms),
        **time_fields("tpot", run.tpot_ms),
        "cpu_others_pct": run.contention.others_pct,
        "cpu_steal_pct": run.contention.steal_pct,
        "cpu_wait_pct": run.contention.wait_pct,
        **{name: getattr(run, name) for name in _OF_SERVER},
        "errors": None if run.errors is None else sum(run.errors.values()),
        "device_ms": run.device_ms,
        "samples_delayed": run.samples_delayed or None,
        **{name: getattr(run, name) for name in _OF_PASSES},
        "latency_spread": run.latency_spread,
        **token_fields(run),
        "flop_per_pass": run.flop_per_pass,
        "bytes_per_pass": run.bytes_per_pass,
        **run.limit.fields(),
    }


def run_points(run: ProbeRun, tags: Mapping[str, str]) -> list[Point]:
    """Return the rows of a run: of `probe`, of `cost` with a price, of `software` if a version is known.

    Args:
        run: The run, complete.
        tags: Host and static labels.
    """
    return [
        probe_point(run, tags),
        *([] if run.cost is None else [cost_point(run, run.cost, tags)]),
        *software_points(run, tags),
    ]


def probe_point(run: ProbeRun, tags: Mapping[str, str]) -> Point:
    """Return a row of `probe`."""
    fields: dict[str, FieldValue | None] = {
        **latency_fields(run),
        "samples": run.samples,
        "stop_reason": run.stop_reason,
        "throughput_per_s": run.throughput_per_s,
        "h2d_ms": run.h2d_ms,
        "fingerprint": run.fingerprint,
        "threads": run.threads,
        "latency_rel_err": run.latency_rel_err,
        "outliers": run.outliers,
        **further_fields(run),
        **energy_fields(run.energy),
        **run.activity,
    }
    # A server chooses its own batches: only the concurrency is known.
    batch = "" if "concurrency" in run.tags else str(run.batch)
    own_tags = {"device": run.device, "probe": run.probe, "batch": batch, **run.tags}
    return make_point("probe", {**tags, **own_tags}, fields, run.time_ns)


def software_points(run: ProbeRun, tags: Mapping[str, str]) -> list[Point]:
    """Return a row of `software`; none if no version is known.

    Only short plain text counts as a version: any other text in a tag could begin a series each run.
    """
    known = {
        tag: value
        for tag, key in SOFTWARE_TAGS.items()
        if _VERSION.fullmatch(value := run.software.get(key, ""))
    }
    own_tags = {**tags, "device": run.device, "probe": run.probe, **known}
    return [make_point("software", own_tags, {"probe_runs": 1}, run.time_ns)] if known else []


def cost_point(run: ProbeRun, cost: CostSample, tags: Mapping[str, str]) -> Point:
    """Return a row of `cost` on the probe basis; the energy's method is part of a cost that includes energy."""
    energy, emitted = run.energy, run.emitted
    fields: dict[str, FieldValue | None] = {
        **cost_fields(cost, run),
        "price_stale": cost.is_stale or None,
        "contended": run.contended,
        "energy_method": energy.method if energy and (cost.energy or emitted) else None,
        "carbon_per_inference_g": emitted.g if emitted else None,
        "carbon_method": emitted.method if emitted else None,
    }
    for name, summary in run.rolled.items():
        fields |= rolled_fields(name, summary)
    own_tags = {
        "device": run.device,
        "probe": run.probe,
        "basis": "probe",
        "plan": cost.plan,
        "currency": cost.currency,
    }
    return make_point("cost", {**tags, **own_tags}, fields, run.time_ns)


def token_fields(run: ProbeRun) -> dict[str, float | None]:
    """Return rates and energy of a run's tokens under the names of the series; None where unknown."""
    counts = {"in": run.window_tokens_in, "out": run.window_tokens_out}
    energy_j = None if run.energy is None else run.energy.per_inference_j
    rates = {
        f"tokens_{kind}_per_s": None if tokens is None else tokens / run.inferring_s
        for kind, tokens in counts.items()
    }
    return {
        **rates,
        **{
            f"energy_per_million_tokens_{kind}_j": per_million_tokens(energy_j, run, tokens)
            for kind, tokens in counts.items()
        },
    }


def rolled_fields(name: str, rolled: Rolled) -> dict[str, float]:
    """Return the summary of a rolling window under the names of the series; one sample has no range."""
    return {
        f"rolling_{name}": rolled.median,
        **({f"rolling_{name}_iqr": rolled.iqr} if rolled.samples > 1 else {}),
        f"rolling_{name}_coverage": rolled.coverage,
    }


def cost_fields(cost: CostSample, run: ProbeRun) -> dict[str, float | None]:
    """Return the cost of an inference and of tokens, and those at the physical limit; None where unknown."""
    each = {"cost": cost.per_inference, "cost_roofline": cost.roofline}
    counts = {"in": run.window_tokens_in, "out": run.window_tokens_out}
    return {
        "cost_per_inference": cost.per_inference,
        "cost_hardware": cost.hardware,
        "cost_energy": cost.energy,
        "cost_reference": cost.reference,
        "cost_roofline": cost.roofline,
        **{
            f"{name}_per_million_tokens_{kind}": per_million_tokens(amount, run, tokens)
            for name, amount in each.items()
            for kind, tokens in counts.items()
        },
    }


def per_million_tokens(
    per_inference: float | None, run: ProbeResult, tokens: float | None
) -> float | None:
    """Return the whole cost, or energy, of the inferences per million tokens of one kind; None if unknown.

    Of a request to a server, the figures of input and of output tokens both contain the whole
    request and must not be added: the shares of prefill and decode cannot be measured by a client.

    Args:
        per_inference: Cost or energy of an inference.
        run: The run.
        tokens: Tokens of that kind in the window.
    """
    if per_inference is None or not tokens:
        return None
    return per_inference * run.inferences / tokens * MILLION


def report_document(run: ProbeRun) -> dict[str, Any]:
    """Return a priced run as JSON, as `costprobe status --json` and `probe --json` print it."""
    energy, cost, terms, emitted = run.energy, run.cost, run.terms, run.emitted
    document: dict[str, Any] = {
        "time_ns": run.time_ns,
        "device": run.device,
        "probe": run.probe,
        "batch": run.batch,
        **dict.fromkeys(LATENCIES),
        **latency_fields(run),
        "samples": run.samples,
        "stop_reason": run.stop_reason,
        "throughput_per_s": run.throughput_per_s,
        "h2d_ms": run.h2d_ms,
        "latency_rel_err": run.latency_rel_err,
        "outliers": run.outliers,
        "contended": run.contended,
        "threads": run.threads,
        "tags": dict(run.tags),
        "fields": present(further_fields(run)),
        "fingerprint": run.fingerprint,
        "software": dict(run.software),
        "energy": {**energy_fields(energy), "energy_scope": energy.scope} if energy else None,
        "energy_absent": run.energy_absent or None,
        "cost": {"currency": cost.currency, **cost_fields(cost, run)} if cost else None,
        "price": terms_document(terms) if terms else None,
        "carbon": None,
        "rolling": {},
    }
    if emitted is not None:
        document["carbon"] = {
            "carbon_per_inference_g": emitted.g,
            "carbon_method": emitted.method,
        }
    for name, rolled in run.rolled.items():
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
