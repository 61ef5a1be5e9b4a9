"""Quantiles of samples."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation of order statistics (Hyndman and Fan 1996, type 7).

    Args:
        ordered: Samples in ascending order; at least one.
        share: From 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
