"""The measured latency of a model beside what common mistakes of timing report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costprobe.adapters.probe_child.results import MISTAKES, NaiveTiming
from costprobe.core.units import percent
from costprobe.probing.rows import MeasuredRun
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.text import local


@dataclass(frozen=True, slots=True)
class NaiveReport:
    """A run that also measured with common mistakes.

    Attributes:
        run: The run.
        time_ns: UTC in ns of its end.
    """

    run: MeasuredRun
    time_ns: int

    def document(self) -> dict[str, Any]:
        """Return the latency, and that of each mistake with its error, as JSON."""
        result = self.run.result
        return {
            "probe": result.probe,
            "device": result.device,
            "time_ns": self.time_ns,
            "fingerprint": result.fingerprint,
            "batch": result.batch,
            "threads": result.threads,
            "latency_p50_ms": self._ours_ms,
            "latency_rel_err": result.latency_rel_err,
            "samples": result.samples,
            "contended": result.contended,
            "mistakes": [
                {
                    "mistake": timing.mistake,
                    "latency_ms": timing.latency_ms,
                    "error_pct": timing.error_pct(self._ours_ms),
                    "samples": timing.samples,
                    "not_applicable": timing.not_applicable or None,
                }
                for timing in self.run.naive
            ],
        }

    def lines(self) -> list[str]:
        """Return a table, and why mistakes are missing from it."""
        result = self.run.result
        rows: list[tuple[str, ...]] = [
            ("timing", "passes", "ms", "error"),
            ("costprobe: median", f"{result.samples:,}", f"{self._ours_ms:.4g}", "-"),
        ]
        rows += [self._cells(timing) for timing in self.run.naive if not timing.not_applicable]
        lines = [
            f"{result.probe} on {result.device}, {local(self.time_ns)}: batch {result.batch}",
            *table_lines(rows),
            *(
                f"{MISTAKES[timing.mistake]}: {timing.not_applicable}"
                for timing in self.run.naive
                if timing.not_applicable
            ),
        ]
        if result.latency_rel_err is not None:
            known = percent(result.latency_rel_err)
            lines.append(f"the median is known to ±{known} within this run (95 %)")
        if result.contended:
            lines.append("measured beside other work: repeat it on an idle device")
        return lines

    @property
    def _ours_ms(self) -> float:
        return self.run.result.latency_ms["p50"]

    def _cells(self, timing: NaiveTiming) -> tuple[str, ...]:
        error_pct = timing.error_pct(self._ours_ms)
        return (
            MISTAKES[timing.mistake],
            f"{timing.samples:,}",
            "-" if timing.latency_ms is None else f"{timing.latency_ms:.4g}",
            "-" if error_pct is None else f"{error_pct:+,.1f} %",
        )
