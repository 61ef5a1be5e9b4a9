"""The past under other prices: the same samples, priced as if another plan had held."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from agent.costing.probe_basis import cost_sample
from agent.model import Point
from agent.pricing.book import Terms


@dataclass(frozen=True, slots=True)
class Sample:
    """What an inference took at an instant, whatever it cost.

    Attributes:
        device: Name of the device.
        probe: Name of the probe.
        time_ns: UTC in ns.
        time_per_inference_s: Seconds of the device for one inference.
        energy_per_inference_j: Joules for one inference; None where not known.
        batch: Inferences per pass; empty where not known.
        latency_p50_ms: Median latency of a pass; None where not known.
        fingerprint: Of the software and the model; empty where not known.
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
        per_inference: Median currency per inference; None where no sample could be priced.
        samples: How many could.
        unpriced: How many could not: the plan has no price for them, or electricity is paid for
            apart and their energy is not known.
    """

    per_inference: float | None
    samples: int
    unpriced: int


def samples_of(rows: Iterable[Point]) -> list[Sample]:
    """The samples in rows of `probe` or `sweep`, oldest first.

    Contended ones are left out: they are of another device than is paid for.
    """
    found = []
    for row in rows:
        throughput = row.fields.get("throughput_per_s")
        energy_j = row.fields.get("energy_per_inference_j")
        latency_ms = row.fields.get("latency_p50_ms")
        if not isinstance(throughput, float) or throughput <= 0 or row.fields.get("contended"):
            continue
        found.append(
            Sample(
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
    return sorted(found, key=lambda sample: sample.time_ns)


def typical(samples: Sequence[Sample]) -> Sample:
    """One sample that stands for several: their medians, at the time of the newest.

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


def other_batches(samples: Sequence[Sample], swept: Sequence[Sample]) -> list[Sample]:
    """What an inference takes at each batch other than the one that is in use.

    A sweep of the newest software goes before what runs of the past took; what was measured of
    other software says nothing of this one.

    Args:
        samples: Runs of one probe on one device, at least one, oldest first.
        swept: Points of its sweeps, oldest first.
    """
    newest = samples[-1]
    found: dict[str, Sample] = {}
    runs: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.fingerprint == newest.fingerprint:
            runs.setdefault(sample.batch, []).append(sample)
    found |= {batch: typical(of) for batch, of in runs.items()}
    found |= {s.batch: s for s in swept if s.fingerprint == newest.fingerprint}
    others = [sample for batch, sample in found.items() if batch.isdecimal()]
    return sorted(
        (sample for sample in others if sample.batch != newest.batch),
        key=lambda sample: int(sample.batch),
    )


def as_if(samples: Sequence[Sample], other: Sample) -> list[Sample]:
    """The same moments, with inferences made in another way: another batch, another device."""
    return [replace(other, time_ns=sample.time_ns) for sample in samples]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def repriced(samples: Sequence[Sample], terms_at: Callable[[str, int], Terms | None]) -> Repriced:
    """The median cost of an inference over samples, under the terms that a plan gives them.

    Args:
        samples: Of one probe on one device.
        terms_at: The terms for a device at a UTC ns; None where nothing prices it.
    """
    costs = []
    for sample in samples:
        terms = terms_at(sample.device, sample.time_ns)
        priced = terms and cost_sample(
            terms,
            terms,
            region_s=sample.time_per_inference_s,
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
    """The share of the hours in use from which a device that is always paid for costs less.

    On demand is paid for in the hours in use alone; a reserved or an owned device in every hour, and
    its electricity where that is paid for apart. They cost the same where
    share x on_demand = fixed + share x electricity.

    Args:
        fixed_per_hour: Currency per hour of the device that is always paid for.
        on_demand_per_hour: Currency per hour of use on demand, all in.
        electricity_per_hour: Currency for the fixed device's electricity in an hour of use.

    Returns:
        None where on demand costs no more than the electricity alone, so that nothing is ever
        saved; above 1 where on demand is always cheaper.
    """
    saved = on_demand_per_hour - electricity_per_hour
    return fixed_per_hour / saved if saved > 0 else None
