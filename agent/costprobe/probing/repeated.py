"""Several runs of a probe, to be compared with those of another: what an inference took, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import ConfigDict, Field, TypeAdapter

from costprobe.pricing.book import Terms
from costprobe.probing.cost import ProbeRun, cost_sample, energy_per_inference

# Fewer do not show how runs differ.
RUNS_MIN: Final = 5
# What must be the same for a cost to be compared, and the words for it.
_SAME: Final = {
    "probe": "probe",
    "model": "device",
    "batch": "batch",
    "dtype": "dtype",
    "threads": "threads",
    "concurrency": "concurrency",
}
# A run is delayed if its threads waited for more than this share of their time, and too few of its passes did not.
_DELAYED_PCT: Final = 10.0
# A fact of the software that changes with what a latency means.
_TIMING: Final = "timing"
_Amount = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class RunFigure:
    """What an inference took in one run.

    Attributes:
        device_s: Seconds of the device.
        energy_j: Joules; None where electricity is part of the price, or the energy is unknown.
        contended: Whether others used the device; None where unknown.
        delayed: Whether they delayed nearly all passes, so that the time is that of delayed ones.
    """

    device_s: _Amount
    energy_j: _Amount | None
    contended: bool | None
    delayed: bool = False

    @classmethod
    def of(cls, run: ProbeRun, *, pays_energy: bool) -> Self:
        """Return the figure of a run, with its energy if electricity is paid apart."""
        energy = energy_per_inference(run) if pays_energy else None
        return cls(
            run.inferring_s / run.inferences,
            None if energy is None else energy.per_inference_j,
            run.contended,
            (run.contention.wait_pct or 0.0) > _DELAYED_PCT and not run.samples_delayed,
        )


@dataclass(frozen=True, slots=True)
class ProbeRuns:
    """Several runs of one probe.

    Attributes:
        probe: Name of the probe.
        device: Name of the device.
        model: Model of the device.
        batch: Items of a forward pass, or of a request.
        dtype: Configured type of weights and inputs; None for the model's own.
        threads: Threads on a CPU; None on other devices.
        concurrency: Requests at a time to a server; None of a model.
        software: Facts that the fingerprint is computed from.
        time_ns: UTC in ns of the end of the last run.
        runs: At least five.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    probe: str
    device: str
    model: str
    batch: int
    dtype: str | None
    threads: int | None
    concurrency: str | None
    software: dict[str, str]
    time_ns: int
    runs: Annotated[tuple[RunFigure, ...], Field(min_length=RUNS_MIN)]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return runs that were stored as their fields.

        Raises:
            ValueError: They are no such runs.
        """
        return TypeAdapter(cls).validate_python(document)

    def differences(self, now: ProbeRuns, *, is_file: bool) -> Iterator[str]:
        """Yield what makes the costs of both incomparable; of another probe the name may differ."""
        pairs = {
            words: (getattr(self, name), getattr(now, name))
            for name, words in _SAME.items()
            if is_file or name != "probe"
        }
        before, after = (f"version {one.software.get(_TIMING)}" for one in (self, now))
        pairs["way of timing"] = (before, after)
        for words, (old, new) in pairs.items():
            if old != new:
                yield f"{words} {old or 'none'} and now {new or 'none'}"


def undelayed(
    base: ProbeRuns | None, now: ProbeRuns, *, is_paired: bool
) -> dict[str, list[RunFigure]]:
    """Return the runs that others did not delay, or whole pairs of them; all where these are too few.

    Args:
        base: The base; None for none.
        now: The runs that are tested.
        is_paired: Whether they alternated.
    """
    if base is not None and is_paired:
        pairs = list(zip(base.runs, now.runs, strict=True))
        kept = [pair for pair in pairs if not any(run.delayed for run in pair)]
        before, after = zip(*(kept if len(kept) >= RUNS_MIN else pairs), strict=True)
        return {"base": list(before), "now": list(after)}
    sides = {"now": now.runs} if base is None else {"base": base.runs, "now": now.runs}
    used = {name: [run for run in runs if not run.delayed] for name, runs in sides.items()}
    return {
        name: alone if len(alone) >= RUNS_MIN else list(sides[name]) for name, alone in used.items()
    }


def costs_of(
    used: Mapping[str, Sequence[RunFigure]], terms: Terms | None
) -> tuple[dict[str, list[float]], str]:
    """Return the cost of an inference in each run, with its currency; its seconds where one is unknown."""
    if terms is not None:
        samples = {
            name: [cost_sample(terms, terms, run.device_s, run.energy_j) for run in runs]
            for name, runs in used.items()
        }
        if all(None not in found for found in samples.values()):
            return {
                name: [sample.per_inference for sample in found if sample]
                for name, found in samples.items()
            }, terms.rate.currency
    return {name: [run.device_s for run in runs] for name, runs in used.items()}, ""
