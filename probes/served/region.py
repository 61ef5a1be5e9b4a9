"""The steady region of a load of requests, and what it holds.

The load is on before the region, so that power has risen when it starts, and stays on behind it
until the sensors have read their edge, as with forward passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import NamedTuple

from probes.served.outcome import Reply

RISE_S = 0.5
# From the sensors' being asked to their having read, as in probes.region.
READ_S = 0.3
LOOK_S = 0.02


class Region(NamedTuple):
    """When the region ran; times are CLOCK_MONOTONIC ns.

    Attributes:
        steady_start_ns: From here on the load was steady.
        start_ns: The region's start.
        end_ns: The region's end.
        steady_end_ns: Until here the load went on.
    """

    steady_start_ns: int
    start_ns: int
    end_ns: int
    steady_end_ns: int


class Edges(NamedTuple):
    """How the region and the sensors find each other.

    Attributes:
        region_s: Length of the region in seconds.
        tail_s: Longest time in seconds that the load goes on behind it.
        marked: Set once the sensors have been asked to read the edge behind the region.
        on_edge: Told "region_start" and "region_end" with their instants, while load goes on.
    """

    region_s: float
    tail_s: float
    marked: Event
    on_edge: Callable[[str, int], None]


class Held(NamedTuple):
    """What a region holds; of requests that lie partly within it, their shares.

    Attributes:
        requests: Answered requests.
        tokens_in: Their prompts' tokens; None if one of them is not known.
        tokens_out: Tokens generated; None if there are none to count.
    """

    requests: float
    tokens_in: float | None
    tokens_out: float | None


def steady_region(edges: Edges, on_progress: Callable[[float], None]) -> Region:
    """Marks a region of a load that others keep on.

    Args:
        edges: How long, and who is told.
        on_progress: Told the share that is done.
    """
    steady_start_ns = time.monotonic_ns()
    time.sleep(RISE_S)
    start_ns = time.monotonic_ns()
    edges.on_edge("region_start", start_ns)
    elapsed_s = 0.0
    while elapsed_s < edges.region_s:
        time.sleep(min(LOOK_S, edges.region_s - elapsed_s))
        elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
        on_progress(min(elapsed_s / edges.region_s, 1.0))
    end_ns = time.monotonic_ns()
    edges.marked.clear()
    edges.on_edge("region_end", end_ns)
    edges.marked.wait(edges.tail_s)
    time.sleep(READ_S)
    return Region(steady_start_ns, start_ns, end_ns, time.monotonic_ns())


def overlap(start_ns: int, end_ns: int, region_start_ns: int, region_end_ns: int) -> float:
    """Share of a request's time that lies within a region, from 0 to 1."""
    if end_ns <= start_ns:
        return 1.0 if region_start_ns <= start_ns < region_end_ns else 0.0
    within_ns = min(end_ns, region_end_ns) - max(start_ns, region_start_ns)
    return max(0, within_ns) / (end_ns - start_ns)


def held(
    replies: Sequence[Reply], start_ns: int, end_ns: int, tokens_out: Callable[[Reply], int | None]
) -> Held:
    """What a region holds, each request by the share of its time that lies within.

    The requests under way at an edge were served on both sides of it. To count completions alone
    would give the region all of those that it only ended, and none of those that it only began:
    wrong by up to as many as are under way at a time, which for answers that take seconds is a
    good part of what a region of some seconds holds. By shares, both edges are wrong by no more
    than the unevenness of the work within a request.

    Args:
        replies: Answered requests, in any order.
        start_ns: The region's start, CLOCK_MONOTONIC ns.
        end_ns: The region's end, CLOCK_MONOTONIC ns.
        tokens_out: Tokens that a request generated; None if it is not known.
    """
    shares = [(overlap(x.start_ns, x.end_ns, start_ns, end_ns), x) for x in replies]
    shares = [(share, x) for share, x in shares if share > 0]
    return Held(
        sum(share for share, _ in shares),
        _weighted([(share, x.tokens_in) for share, x in shares]),
        _weighted([(share, tokens_out(x)) for share, x in shares]),
    )


def _weighted(counts: Sequence[tuple[float, int | None]]) -> float | None:
    total = 0.0
    for share, count in counts:
        if count is None:
            return None
        total += share * count
    return total if counts else None
