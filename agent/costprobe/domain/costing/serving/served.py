"""Requests and tokens that a service served in a window, from its own counters."""

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
    """Counts of a window; None where the server has no counter.

    Attributes:
        requests: Completed requests.
        errors: Failed or cancelled requests.
        inferences: Items inferred, where a request may contain several.
        tokens_in: Prompt tokens, cached ones included.
        tokens_out: Generated tokens.
        cached_tokens: The part of tokens_in that was found in a cache.
        prefill_s: Seconds of prefill; only its ratio to decode_s is meaningful.
        decode_s: Seconds of decode.
        compute_s: Seconds of compute, where prefill and decode are not separated.
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
        """Items inferred: requests, where the server has no finer counter."""
        return self.requests if self.inferences is None else self.inferences

    @property
    def work_s(self) -> float | None:
        """Seconds of work by the server's clock; only ratios between models are meaningful."""
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
        start_ns: CLOCK_MONOTONIC ns of the scrape that started the window; 0 if there was none.
        end_ns: CLOCK_MONOTONIC ns of the scrape that ended it.
        models: Counts by served model; "" holds what the server attributes to no model.
        problems: Why the counts may be incomplete; empty for a complete window.
        missing: Expected counters that the server lacks.
        restarts: Scrapes at which a counter was found reset.
        readings: Successful scrapes.
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
        """Whether the counts cover everything that was served in the window."""
        return not self.problems

    @property
    def total(self) -> Counts:
        """The counts of all models together."""
        return summed(list(self.models.values()))


def summed(counts: Sequence[Counts]) -> Counts:
    """Return the sum of counts; None for what none of them has."""
    found: dict[str, float] = {}
    for measure in MEASURES:
        values = [getattr(one, measure) for one in counts]
        known = [value for value in values if value is not None]
        if known:
            found[measure] = sum(known)
    return Counts(**found)
