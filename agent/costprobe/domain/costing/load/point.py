"""A point of a load curve: the figures of a server at one load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from costprobe.core.records import FieldValue
from costprobe.domain.costing.probe.points import latency_fields, per_million_tokens
from costprobe.domain.costing.probe.run import MeasuredRun, ProbeReport

Loop = Literal["closed", "open"]
_TIMES: Final = tuple(
    f"{name}_{figure}_ms"
    for name in ("latency", "ttft", "tpot", "itl")
    for figure in ("p50", "p90", "p99", "mean")
)
# The figures of a point, by the names of the series `sweep`.
FIGURES: Final = (
    *("offered_per_s", "throughput_per_s", "tokens_in_per_s", "tokens_out_per_s", "in_flight"),
    *_TIMES,
    *("tokens_in", "tokens_out", "cached_tokens", "tokens_per_s_user", "goodput_per_s"),
    *("requests", "errors", "window_s", "late_ms", "client_busy_share"),
    *("energy_per_inference_j", "energy_rel_err"),
    *("energy_per_million_tokens_in_j", "energy_per_million_tokens_out_j"),
    *("cost_per_inference", "cost_per_million_tokens_in", "cost_per_million_tokens_out"),
)
# Quantiles of a normal distribution: the 90th percentile, and two-sided 95 %.
_Z90, _Z95 = 1.2816, 1.96


@dataclass(frozen=True, slots=True)
class LoadStep:
    """A load to measure.

    Attributes:
        loop: "closed": so many requests in flight; "open": requests at random instants.
        number: Its place in its loop, from 1.
        concurrency: Requests in flight of a closed loop; None of an open loop.
        rate_per_s: Mean requests per second of an open loop; None of a closed loop.
    """

    loop: Loop
    number: int
    concurrency: int | None = None
    rate_per_s: float | None = None

    @property
    def text(self) -> str:
        """The load: "8 in flight", "1.5 requests/s"."""
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:.3g} requests/s"
        return f"{self.concurrency} in flight"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The figures of a server at one load.

    Attributes:
        loop: Kind of the loop.
        number: Its place in its loop, from 1.
        concurrency: Requests in flight of a closed loop; None of an open loop.
        figures: Value of each of FIGURES; None where unknown.
        energy_method: How the energy was measured; None if it was not.
        contended: Whether others used the device; None where unknown.
    """

    loop: Loop
    number: int
    concurrency: int | None
    figures: Mapping[str, float | None]
    energy_method: str | None = None
    contended: bool | None = None

    def __getitem__(self, name: str) -> float | None:
        """Return a figure; None where it is unknown."""
        return self.figures.get(name)

    @property
    def text(self) -> str:
        """The load: "8 in flight", "1.5 requests/s"."""
        return LoadStep(self.loop, self.number, self.concurrency, self["offered_per_s"]).text

    @property
    def error_share(self) -> float:
        """Share of the requests without an answer, from 0 to 1."""
        requests = self["requests"] or 0.0
        return (self["errors"] or 0.0) / requests if requests else 1.0

    @property
    def work_per_s(self) -> float:
        """Generated tokens per second; requests where tokens are unknown."""
        return self["tokens_out_per_s"] or self["throughput_per_s"] or 0.0

    @property
    def cost(self) -> float | None:
        """Cost per million generated tokens; of a request where tokens are unknown; None without a price."""
        if self["tokens_out_per_s"]:
            return self["cost_per_million_tokens_out"]
        return self["cost_per_inference"]

    @property
    def speed(self) -> float | None:
        """Tokens per second of a user; requests per second of one where tokens are unknown."""
        if self["tokens_per_s_user"] is not None or self["tokens_out_per_s"]:
            return self["tokens_per_s_user"]
        latency_ms = self["latency_p50_ms"]
        return 1000 / latency_ms if latency_ms else None

    @property
    def rel_err(self) -> float:
        """Relative uncertainty (95 %) of the throughput, from the spread of the requests' latencies.

        Without their percentiles the spread is taken to be as large as the mean.
        """
        answered = (self["requests"] or 0.0) - (self["errors"] or 0.0)
        if answered <= 0:
            return 1.0
        p50, p90, mean = (self[f"latency_{name}_ms"] for name in ("p50", "p90", "mean"))
        spread = (p90 - p50) / _Z90 / mean if p50 and p90 and mean else 1.0
        return _Z95 * spread / math.sqrt(answered)

    def meets(self, bounds_ms: Mapping[str, float]) -> bool | None:
        """Return whether the point meets a service level; None if too few requests tell.

        A request without an answer is late: where a percentile has a bound, no more than the rest
        of the requests may be without one.

        Args:
            bounds_ms: Longest times in ms, by their names: "ttft_p90".
        """
        found: list[bool | None] = []
        for name, bound_ms in bounds_ms.items():
            figure = self[f"{name}_ms"]
            percentile = int(name.rpartition("_p")[2])
            if self.error_share * 100 > 100 - percentile:
                found.append(False)
            else:
                found.append(None if figure is None else figure <= bound_ms)
        if False in found:
            return False
        return None if None in found else True


def point_of(step: LoadStep, run: MeasuredRun, report: ProbeReport) -> LoadPoint:
    """Return a point of a load curve.

    Cost and energy per million tokens in, and out, each contain the whole cost and energy, as in the
    series `cost`: they are not to be added.

    Args:
        step: The load.
        run: The measured run.
        report: The same run with its cost at the prices in force.
    """
    result, energy, cost = run.result, report.energy, report.cost
    known: dict[str, FieldValue | None] = {**result.fields, **run.load, **latency_fields(result)}
    tpot_ms = known.get("tpot_p50_ms")
    figures = {name: _number(known.get(name)) for name in FIGURES}
    figures |= {
        "throughput_per_s": result.throughput_per_s,
        "window_s": result.window_s,
        "tokens_per_s_user": 1000 / tpot_ms if isinstance(tpot_ms, float) and tpot_ms else None,
        "energy_per_inference_j": None if energy is None else energy.per_inference_j,
        "energy_rel_err": None if energy is None else energy.rel_err,
        "cost_per_inference": None if cost is None else cost.per_inference,
    }
    for kind, tokens in (("in", result.tokens_in), ("out", result.tokens_out)):
        if not tokens:
            continue
        figures[f"tokens_{kind}_per_s"] = tokens / result.window_s
        if energy is not None:
            figures[f"energy_per_million_tokens_{kind}_j"] = per_million_tokens(
                energy.per_inference_j, result, tokens
            )
        if cost is not None:
            figures[f"cost_per_million_tokens_{kind}"] = per_million_tokens(
                cost.per_inference, result, tokens
            )
    return LoadPoint(
        loop=step.loop,
        number=step.number,
        concurrency=step.concurrency,
        figures=figures,
        energy_method=None if energy is None else energy.method,
        contended=report.contended,
    )


def _number(value: FieldValue | None) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
