"""The steady-state window of a load of requests, and the work within it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costprobe_probes.served.outcome import Reply
from costprobe_probes.window import READ_S, RISE_S, ProbeWindow, WindowSettings

POLL_S = 0.02


class WindowWork(NamedTuple):
    """Work within a window; a request that lies partly within it counts by its share.

    Attributes:
        requests: Answered requests.
        tokens_in: Prompt tokens; None if one of the counts is unknown.
        tokens_out: Generated tokens; None if there are none to count.
    """

    requests: float
    tokens_in: float | None
    tokens_out: float | None


def mark_steady_window(
    settings: WindowSettings,
    on_progress: Callable[[float], None],
    *,
    is_enough: Callable[[], bool] = lambda: True,
    longest_s: float = 0.0,
) -> ProbeWindow:
    """Mark a window of a load that other threads maintain.

    Args:
        settings: Shortest length of the window, and its connection to the sensors.
        on_progress: Called with the completed share of it, from 0 to 1.
        is_enough: Whether a window of this length has enough requests.
        longest_s: Length in s at which it ends even if they are not enough.
    """
    steady_start_ns = time.monotonic_ns()
    time.sleep(RISE_S + settings.phase_s)
    start_ns = time.monotonic_ns()
    settings.on_edge("window_start", start_ns)
    elapsed_s = 0.0
    while elapsed_s < settings.window_s or (elapsed_s < longest_s and not is_enough()):
        left_s = settings.window_s - elapsed_s
        time.sleep(min(POLL_S, left_s) if left_s > 0 else POLL_S)
        elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
        on_progress(min(elapsed_s / settings.window_s, 1.0))
    end_ns = time.monotonic_ns()
    settings.marked.clear()
    settings.on_edge("window_end", end_ns)
    settings.marked.wait(settings.tail_s)
    time.sleep(READ_S)
    return ProbeWindow(steady_start_ns, start_ns, end_ns, time.monotonic_ns())


def overlap(start_ns: int, end_ns: int, window_start_ns: int, window_end_ns: int) -> float:
    """Return the share of a request's duration that lies within a window, from 0 to 1."""
    if end_ns <= start_ns:
        return 1.0 if window_start_ns <= start_ns < window_end_ns else 0.0
    within_ns = min(end_ns, window_end_ns) - max(start_ns, window_start_ns)
    return max(0, within_ns) / (end_ns - start_ns)


def work_within(
    replies: Sequence[Reply], start_ns: int, end_ns: int, tokens_out: Callable[[Reply], int | None]
) -> WindowWork:
    """Return the work within a window, each request by the share of its duration within it.

    Requests in flight at an edge were served on both sides of it. Counting completions would
    include all requests that end in the window and none that only begin in it: an error of up to
    the concurrency, which is large for requests of seconds in a window of a few seconds. With
    shares, the error at each edge depends only on the variation of work within a request.

    Args:
        replies: Answered requests, in any order.
        start_ns: Start of the window, CLOCK_MONOTONIC ns.
        end_ns: End of the window, CLOCK_MONOTONIC ns.
        tokens_out: Tokens that a request generated; None if unknown.
    """
    shares = [(overlap(x.start_ns, x.end_ns, start_ns, end_ns), x) for x in replies]
    shares = [(share, x) for share, x in shares if share > 0]
    return WindowWork(
        sum(share for share, _ in shares),
        _weighted_sum([(share, x.tokens_in) for share, x in shares]),
        _weighted_sum([(share, tokens_out(x)) for share, x in shares]),
    )


def _weighted_sum(counts: Sequence[tuple[float, int | None]]) -> float | None:
    total = 0.0
    for share, count in counts:
        if count is None:
            return None
        total += share * count
    return total if counts else None
