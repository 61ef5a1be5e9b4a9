"""Requests within a bound of a service level: counts that add up over windows, hosts and hours.

The counts are those of histograms: a request counts as within a bound if it is in a bucket whose
edge is not above it. What lies between two edges is not known, and counts as not within: the share
is a lower bound, and exact if the bound is an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from costprobe.core.units import counted, percent

BOUNDS: Final = tuple(
    f"{figure}_p{percentile}"
    for figure in ("ttft", "tpot", "latency")
    for percentile in (50, 90, 99)
)


def figure_of(bound: str) -> str:
    """Return the time that a bound is of: "ttft" of "ttft_p90"."""
    return bound.partition("_p")[0]


def objective_of(bound: str) -> float:
    """Return the share of requests that has to be within a bound: 0.9 of "ttft_p90"."""
    return int(bound.partition("_p")[2]) / 100


@dataclass(frozen=True, slots=True)
class SloShare:
    """The requests within a bound of a service level.

    Attributes:
        bound: Its name, one of BOUNDS: "ttft_p90".
        requests: All that the servers timed.
        requests_met: Those surely within the bound: those up to `within_ms`.
        bound_ms: The bound; None if unknown.
        within_ms: The largest edge of a bucket that is not above it, of several servers the lowest;
            None if unknown.
        cost_per_request_met: Cost by the requests within the bound; None if either is unknown.
        objective_share: Share of requests that has to be within it: 0.9 of "ttft_p90".
        met_share: Share of those that are; None without requests.
    """

    bound: str
    requests: float
    requests_met: float
    bound_ms: float | None = None
    within_ms: float | None = None
    cost_per_request_met: float | None = None
    objective_share: float = field(init=False)
    met_share: float | None = field(init=False)

    def __post_init__(self) -> None:
        """Compute the shares."""
        share = self.requests_met / self.requests if self.requests else None
        object.__setattr__(self, "objective_share", objective_of(self.bound))
        object.__setattr__(self, "met_share", share)

    @property
    def is_missed(self) -> bool:
        """Whether fewer requests than the objective are surely within the bound."""
        return self.met_share is not None and self.met_share < self.objective_share


def slo_words(one: Mapping[str, Any]) -> str:
    """Return a share in words: "ttft_p90 500 ms: 97.25 % of 1,000 requests, objective 90 %".

    Args:
        one: The fields of a `SloShare`.
    """
    within = "" if one["bound_ms"] is None else f" {one['bound_ms']:g} ms"
    if one["within_ms"] not in (None, one["bound_ms"]):
        within += f" (counted up to {one['within_ms']:g} ms)"
    share = "no requests"
    if one["met_share"] is not None:
        share = f"{percent(one['met_share'], 2)} of {counted(round(one['requests']), 'request')}"
    return f"{one['bound']}{within}: {share}, objective {percent(one['objective_share'])}"
