"""What a probe child reports beside its result: mistakes of timing, and the start of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# The names of the mistakes, and what they are.
MISTAKES: Final[Mapping[str, str]] = {
    "no_synchronize": "no synchronize, host clock",
    "host_clock": "host clock for each pass, not events",
    "first_pass": "no warm-up: first pass alone",
    "no_warm_up": "no warm-up: mean with the first pass",
    "transfer_inside": "copy of the input inside",
    "one_sample": "one sample",
    "batch_1": "batch 1 times the batch",
}


@dataclass(frozen=True, slots=True)
class NaiveTiming:
    """What a mistake of timing reports.

    Attributes:
        mistake: A name of MISTAKES.
        latency_ms: The latency of a batch in ms that it reports; None if it cannot be made here.
        samples: Number of timed passes.
        not_applicable: Why it cannot be made here; empty if it was.
    """

    mistake: str
    latency_ms: float | None
    samples: int
    not_applicable: str = ""

    def error_pct(self, latency_p50_ms: float) -> float | None:
        """Return the error in percent of the measured latency; None without a latency.

        Args:
            latency_p50_ms: The measured median, above 0.
        """
        if self.latency_ms is None:
            return None
        return (self.latency_ms / latency_p50_ms - 1) * 100


@dataclass(frozen=True, slots=True)
class ModelStart:
    """A model that was started in a new process.

    Attributes:
        process_start_s: Until the interpreter had started.
        load_s: Until packages were imported, the device was open, and the weights were on it.
        first_answer_s: First pass, with lazy initialization and compilation.
        read_bytes: Bytes that were read from storage; None if unknown.
        fingerprint: Fingerprint of software and model.
    """

    process_start_s: float
    load_s: float
    first_answer_s: float
    read_bytes: int | None
    fingerprint: str

    @property
    def total_s(self) -> float:
        """From the start of the process to the first answer."""
        return self.process_start_s + self.load_s + self.first_answer_s
