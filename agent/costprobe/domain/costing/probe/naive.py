"""What common mistakes of timing report about a model, against its measured latency."""

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
