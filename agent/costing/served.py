"""What a service served in a window, by its own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

Measure = Literal[
    "requests",
    "errors",
    "inferences",
    "tokens_in",
    "tokens_out",
    "cached_tokens",
    "prefill_s",
    "decode_s",
    "compute_s",
]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was served; None where the server does not count it.

    Attributes:
        requests: Requests answered to their end.
        errors: Requests that were not: failed or broken off.
        inferences: Items inferred, where a request may hold several.
        tokens_in: Tokens read, cached ones included.
        tokens_out: Tokens written.
        cached_tokens: The part of tokens_in that was found in a cache.
        prefill_s: Seconds spent reading prompts; of use as a ratio to decode_s alone.
        decode_s: Seconds spent writing answers.
        compute_s: Seconds spent computing, where prompt and answer are not told apart.
    """

    requests: float | None = None
    errors: float | None = None
    inferences: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    cached_tokens: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    compute_s: float | None = None

    @property
    def inferred(self) -> float | None:
        """Items inferred: requests, where the server counts nothing finer."""
        return self.requests if self.inferences is None else self.inferences

    @property
    def work_s(self) -> float | None:
        """Seconds of work, on whatever clock the server has: of use as a ratio between models."""
        if self.prefill_s is not None and self.decode_s is not None:
            return self.prefill_s + self.decode_s
        return self.compute_s


MEASURES: tuple[str, ...] = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True, slots=True)
class ServedWindow:
    """What a service served between two instants.

    Attributes:
        service: Name of the service.
        engine: Name of its engine.
        start_ns: CLOCK_MONOTONIC ns of the reading that began the window; 0 if there was none.
        end_ns: CLOCK_MONOTONIC ns of the reading that ended it.
        models: Counts by served model; "" holds what the server attributes to no model.
        problems: Why the counts may not be all; empty for a complete window.
        missing: Counters that the server should have and has not, for people.
        restarts: How often a counter was found to have begun anew, once for each reading.
        readings: Readings that succeeded.
    """

    service: str
    engine: str
    start_ns: int
    end_ns: int
    models: Mapping[str, Counts]
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    restarts: int = 0
    readings: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the counts are all that was served in the window."""
        return not self.problems

    @property
    def total(self) -> Counts:
        """The counts of all models together."""
        return summed(list(self.models.values()))


def summed(counts: Sequence[Counts]) -> Counts:
    """Counts added up; what none of them has stays None."""
    found: dict[str, float] = {}
    for measure in MEASURES:
        values = [getattr(one, measure) for one in counts]
        known = [value for value in values if value is not None]
        if known:
            found[measure] = sum(known)
    return Counts(**found)
