"""The physical limit of a forward pass on a board, and how much of the board a run used.

Source: the roofline model (Williams, Waterman and Patterson 2009): a pass takes at least
max(FLOP / peak FLOP rate, bytes / peak memory bandwidth). Model FLOP utilization (Chowdhery et al.
2022, PaLM) and model bandwidth utilization are the used shares of the two peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.adapters.probe_child.results import ProbeResult
from costprobe.core.records import FieldValue
from costprobe.pricing.catalogue import GpuModel


@dataclass(frozen=True, slots=True)
class PassLimit:
    """What a pass needs at least, and what it used; each is None where it is unknown.

    Attributes:
        mfu_pct: Its FLOP per second over the peak of its precision, in percent.
        mbu_pct: Its bytes of weights and state per second over the peak bandwidth, in percent.
        roofline_ms: Shortest time of a pass in ms.
        cost_share: `roofline_ms` over the measured mean of a pass: the share of the cost of hardware
            that would remain.
    """

    mfu_pct: float | None = None
    mbu_pct: float | None = None
    roofline_ms: float | None = None
    cost_share: float | None = None

    def fields(self) -> dict[str, FieldValue | None]:
        """The fields of the `probe` series."""
        return {"mfu_pct": self.mfu_pct, "mbu_pct": self.mbu_pct, "roofline_ms": self.roofline_ms}


UNKNOWN_LIMIT = PassLimit()


def pass_limit(result: ProbeResult, gpu: GpuModel | None) -> PassLimit:
    """Return the limit of a run's pass on a model of board; unknown if the board is."""
    if gpu is None:
        return UNKNOWN_LIMIT
    # A board without TF32 multiplies as fp32.
    precision = result.flop_precision or ""
    peak = gpu.flop_per_s.get(precision) or (
        gpu.flop_per_s.get("fp32") if precision == "tf32" else None
    )
    flop_s = _least_s(result.flop_per_pass, peak)
    bytes_s = _least_s(result.bytes_per_pass, gpu.memory_bytes_per_s)
    mfu = None if flop_s is None else flop_s / result.pass_s
    mbu = None if bytes_s is None else bytes_s / result.pass_s
    share = None if mfu is None or mbu is None else max(mfu, mbu)
    return PassLimit(
        mfu_pct=None if mfu is None else 100 * mfu,
        mbu_pct=None if mbu is None else 100 * mbu,
        roofline_ms=None if share is None else 1000 * share * result.pass_s,
        cost_share=share,
    )


def _least_s(work: float | None, peak_per_s: float | None) -> float | None:
    return None if work is None or peak_per_s is None else work / peak_per_s
