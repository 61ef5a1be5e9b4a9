"""What-if prices: past samples priced as if another plan had been in force."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from costprobe.core.records import Point
from costprobe.domain.costing.probe.probe_basis import cost_sample
from costprobe.domain.pricing.book import Terms


@dataclass(frozen=True, slots=True)
class WhatIfSample:
    """Time and energy of an inference at an instant, without a price.

    Attributes:
        device: Name of the device.
        probe: Name of the probe.
        time_ns: UTC in ns.
        time_per_inference_s: Seconds of the device for one inference.
        energy_per_inference_j: Joules for one inference; None if unknown.
        batch: Inferences per pass; empty if unknown.
        latency_p50_ms: Median latency of a pass; None if unknown.
        fingerprint: Of software and model; empty if unknown.
    """

    device: str
    probe: str
    time_ns: int
    time_per_inference_s: float
    energy_per_inference_j: float | None
    batch: str = ""
    latency_p50_ms: float | None = None
    fingerprint: str = ""

    @property
    def power_w(self) -> float | None:
        """Mean power while inferring."""
        energy_j = self.energy_per_inference_j
        return None if energy_j is None else energy_j / self.time_per_inference_s


@dataclass(frozen=True, slots=True)
class Repriced:
    """Samples under a plan.

    Attributes:
        per_inference: Median currency per inference; None if no sample could be priced.
        samples: Number of priced samples.
        unpriced: Number of other samples: the plan has no price for them, or electricity is paid
            separately and their energy is unknown.
    """

    per_inference: float | None
    samples: int
    unpriced: int


def samples_of(rows: Iterable[Point]) -> list[WhatIfSample]:
    """Return the samples in rows of `probe` or `sweep`, oldest first.

    Contended samples are excluded, because another process used part of the device.
    """
    samples = []
    for row in rows:
        throughput = row.fields.get("throughput_per_s")
        energy_j = row.fields.get("energy_per_inference_j")
        latency_ms = row.fields.get("latency_p50_ms")
        if not isinstance(throughput, float) or throughput <= 0 or row.fields.get("contended"):
            continue
        samples.append(
            WhatIfSample(
                device=row.tags["device"],
                probe=row.tags["probe"],
                time_ns=row.time_ns,
                time_per_inference_s=1 / throughput,
                energy_per_inference_j=energy_j if isinstance(energy_j, float) else None,
                batch=row.tags.get("batch", ""),
                latency_p50_ms=latency_ms if isinstance(latency_ms, float) else None,
                fingerprint=str(row.fields.get("fingerprint", "")),
            )
        )
    return sorted(samples, key=lambda sample: sample.time_ns)


def typical(samples: Sequence[WhatIfSample]) -> WhatIfSample:
    """Return one sample with the medians of several, at the time of the newest.

    Args:
        samples: At least one, of one probe on one device, oldest first.
    """
    newest = samples[-1]
    times_s = [sample.time_per_inference_s for sample in samples]
    return replace(
        newest,
        time_per_inference_s=statistics.median(times_s),
        energy_per_inference_j=_median(sample.energy_per_inference_j for sample in samples),
        latency_p50_ms=_median(sample.latency_p50_ms for sample in samples),
    )


def other_batches(
    samples: Sequence[WhatIfSample], swept: Sequence[WhatIfSample]
) -> list[WhatIfSample]:
    """Return the samples of each batch size other than the present one.

    A sweep of the newest software takes precedence over past runs; samples of other software are
    ignored.

    Args:
        samples: Runs of one probe on one device, at least one, oldest first.
        swept: Points of its sweeps, oldest first.
    """
    newest = samples[-1]
    by_batch: dict[str, WhatIfSample] = {}
    runs: dict[str, list[WhatIfSample]] = {}
    for sample in samples:
        if sample.fingerprint == newest.fingerprint:
            runs.setdefault(sample.batch, []).append(sample)
    by_batch |= {batch: typical(samples) for batch, samples in runs.items()}
    by_batch |= {s.batch: s for s in swept if s.fingerprint == newest.fingerprint}
    others = [sample for batch, sample in by_batch.items() if batch.isdecimal()]
    return sorted(
        (sample for sample in others if sample.batch != newest.batch),
        key=lambda sample: int(sample.batch),
    )


def as_if(samples: Sequence[WhatIfSample], other: WhatIfSample) -> list[WhatIfSample]:
    """Return samples at the same times with time and energy of another batch or device."""
    return [replace(other, time_ns=sample.time_ns) for sample in samples]


def _median(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def repriced(
    samples: Sequence[WhatIfSample], terms_at: Callable[[str, int], Terms | None]
) -> Repriced:
    """Return the median cost of an inference over samples, at a plan's terms.

    Args:
        samples: Of one probe on one device.
        terms_at: Returns the terms for a device at a UTC ns; None without a price.
    """
    costs = []
    for sample in samples:
        terms = terms_at(sample.device, sample.time_ns)
        priced = terms and cost_sample(
            terms,
            terms,
            window_s=sample.time_per_inference_s,
            inferences=1,
            energy_per_inference_j=sample.energy_per_inference_j,
        )
        if priced:
            costs.append(priced.per_inference)
    median = statistics.median(costs) if costs else None
    return Repriced(median, len(costs), len(samples) - len(costs))


def break_even_share(
    fixed_per_hour: Decimal,
    on_demand_per_hour: Decimal,
    electricity_per_hour: Decimal = Decimal(0),
) -> Decimal | None:
    """Return the break-even utilization of a device that is paid for in every hour.

    An on-demand device is paid for only in hours of use; a reserved or owned one in every hour, plus
    electricity if that is paid separately. Their costs are equal at
    share x on_demand = fixed + share x electricity.

    Args:
        fixed_per_hour: Currency per hour of the reserved or owned device.
        on_demand_per_hour: Currency per hour of on-demand use, electricity included.
        electricity_per_hour: Currency for the fixed device's electricity in an hour of use.

    Returns:
        None if on demand costs no more than the electricity, so that there is no break-even;
        above 1 if on demand is always cheaper.
    """
    saved = on_demand_per_hour - electricity_per_hour
    return fixed_per_hour / saved if saved > 0 else None
