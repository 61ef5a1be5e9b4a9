"""Requests and tokens that a service served in a window, from its own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costprobe.core.serving_words import MEASURES


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a window; None if the server has no counter.

    Attributes:
        requests: Completed requests.
        errors: Failed or cancelled requests.
        inferences: Inferred items, if a request may contain several.
        tokens_in: Prompt tokens, cached ones included.
        tokens_out: Generated tokens.
        cached_tokens: The part of tokens_in that was found in a cache.
        prefill_s: Device seconds of prefill: a batch counts once.
        decode_s: Device seconds of decode.
        compute_s: Device seconds of compute, where prefill and decode are not separated.
        decode_request_s: Seconds of decode summed over requests: a batch of 32 counts 32 times.
        compute_request_s: Seconds of compute summed over requests.
        executions: Executions of batches.
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
    decode_request_s: float | None = None
    compute_request_s: float | None = None
    executions: float | None = None

    @property
    def inferred(self) -> float | None:
        """Inferred items; requests if the server has no finer counter."""
        return self.requests if self.inferences is None else self.inferences

    @property
    def work_s(self) -> float | None:
        """Device seconds of all work; None where the server does not measure them."""
        known = [
            duration_s
            for duration_s in (self.prefill_s, self.decode_s, self.compute_s)
            if duration_s is not None
        ]
        is_half = (self.prefill_s is None) != (self.decode_s is None)
        return sum(known) if known and not is_half else None

    @property
    def execution_s(self) -> float | None:
        """Estimated device seconds: executions, each as long as a request computes on average.

        It is exact if the length of an execution does not depend on the number of its requests, of
        which it has at least one.
        """
        if self.compute_request_s is None or self.executions is None or self.requests is None:
            return None
        executed = min(1.0, self.executions / self.requests) if self.requests else 0.0
        return self.compute_request_s * executed


@dataclass(frozen=True, slots=True)
class ServedWindow:
    """Requests and tokens of a service between two instants.

    Attributes:
        service: Name of the service.
        engine: Name of its engine.
        start_ns: CLOCK_MONOTONIC ns of the scrape that started the window; 0 if there was none.
        end_ns: CLOCK_MONOTONIC ns of the scrape that ended it.
        models: Counts by served model; "" for counts that the server attributes to no model.
        problems: Reasons why the counts may be incomplete; empty for a complete window.
        missing: Expected counters that the server lacks.
        restarts: Scrapes at which a counter had been reset.
        readings: Successful scrapes.
        tenants: Counts of the same time by tenant, in place of models; None without any.
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
    tenants: ServedWindow | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the counts cover the whole window."""
        return not self.problems

    @property
    def total(self) -> Counts:
        """Sum of the counts of all models."""
        return summed(list(self.models.values()))


def summed(counts: Sequence[Counts]) -> Counts:
    """Return the sum of counts; None for counts that are unknown for all."""
    sums: dict[str, float] = {}
    for measure in MEASURES:
        values = [getattr(model_counts, measure) for model_counts in counts]
        known_values = [value for value in values if value is not None]
        if known_values:
            sums[measure] = sum(known_values)
    return Counts(**sums)
