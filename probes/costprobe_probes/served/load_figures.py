"""Figures of a point of a load curve.

Latencies are those of the requests that began within the window, each followed to its end while the
load continues. Taking the requests that also ended within it would omit long ones more often than
short ones, and stragglers most of all. Throughput is the work within the window, whichever request
it belongs to.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from costprobe_probes.served.load import Outcomes
from costprobe_probes.served.outcome import Reply
from costprobe_probes.served.results import TokensOut, time_per_token_ms
from costprobe_probes.served.window import overlap
from costprobe_probes.stats import summary
from costprobe_probes.window import ProbeWindow


class Cohort(NamedTuple):
    """The requests that began within a window.

    Attributes:
        ended: Those with an answer or a failure.
        unfinished: The others: without an answer when the load ended, or never sent.
    """

    ended: Outcomes
    unfinished: int

    @property
    def requests(self) -> int:
        """All of them."""
        return len(self.ended.replies) + self.errors

    @property
    def errors(self) -> int:
        """Those without an answer."""
        return len(self.ended.failed) + self.unfinished


def cohort(outcomes: Outcomes, window: ProbeWindow, begun: int | None) -> Cohort:
    """Return the requests that began within a window.

    Args:
        outcomes: Outcomes of all requests.
        window: The window.
        begun: Requests that began within it; None if all of them ended.
    """
    ended = Outcomes(
        [x for x in outcomes.replies if window.start_ns <= x.begin_ns < window.end_ns],
        [x for x in outcomes.failed if window.start_ns <= x.begin_ns < window.end_ns],
    )
    count = len(ended.replies) + len(ended.failed)
    return Cohort(ended, 0 if begun is None else max(begun - count, 0))


def load_figures(
    members: Cohort, window: ProbeWindow, bounds_ms: Mapping[str, float], tokens_out: TokensOut
) -> dict[str, Any]:
    """Return latencies of a cohort in ms, its errors, and its goodput; None where unknown.

    Args:
        members: The cohort, with at least one answer.
        window: Its window.
        bounds_ms: The longest "latency", "ttft" and "tpot" of a good answer, in ms; empty without
            a service level.
        tokens_out: Returns the tokens that a request generated.
    """
    replies = members.ended.replies
    times_ms = [times(reply, tokens_out(reply)) for reply in replies]
    gaps_ms = [gap for reply in replies for gap in gaps(reply)]
    window_s = (window.end_ns - window.start_ns) / 1e9
    good = sum(_is_good(each, bounds_ms) for each in times_ms)
    return {
        **{f"{name}_ms": _summary(times_ms, name) for name in ("latency", "ttft", "tpot")},
        "itl_ms": summary(gaps_ms) if gaps_ms else None,
        "requests": members.requests,
        "errors": members.errors,
        "unfinished": members.unfinished,
        "good_requests": good if bounds_ms else None,
        "goodput_per_s": good / window_s if bounds_ms else None,
        "late_ms": statistics.fmean((x.start_ns - x.begin_ns) / 1e6 for x in replies),
    }


def times(reply: Reply, tokens_out: int | None) -> dict[str, float | None]:
    """Return the latency of a request, its time to first token and its time per token, in ms.

    Latency and time to first token count from when its user began to wait.
    """
    first_ns = reply.first_token_ns
    return {
        "latency": (reply.end_ns - reply.begin_ns) / 1e6,
        "ttft": None if first_ns is None else (first_ns - reply.begin_ns) / 1e6,
        "tpot": time_per_token_ms(reply, tokens_out),
    }


def gaps(reply: Reply) -> list[float]:
    """Return the times between the chunks of an answer in ms."""
    arrivals_ns = reply.arrivals_ns or ()
    return [(after - before) / 1e6 for before, after in zip(arrivals_ns, arrivals_ns[1:])]


def tokens_within(
    replies: Sequence[Reply], window: ProbeWindow, tokens_out: TokensOut
) -> float | None:
    """Return the tokens that arrived within a window; None if an answer's are unknown.

    Each chunk of an answer counts as an equal part of its tokens.

    Args:
        replies: Answered requests, with the arrivals of their chunks.
        window: The window.
        tokens_out: Returns the tokens that a request generated.
    """
    total = 0.0
    for reply in replies:
        if reply.end_ns <= window.start_ns or reply.start_ns >= window.end_ns:
            continue
        tokens = tokens_out(reply)
        if tokens is None or not reply.arrivals_ns:
            return None
        arrived = sum(window.start_ns <= t_ns < window.end_ns for t_ns in reply.arrivals_ns)
        total += tokens * arrived / len(reply.arrivals_ns)
    return total


def decode_steps(replies: Sequence[Reply], window: ProbeWindow) -> float:
    """Return how many steps of the model within a window generated further tokens of answers.

    Between two chunks of an answer is one step, which all answers in generation share. The steps are
    those of one answer at a time, and of another one from its end on.

    Args:
        replies: Answered requests, with the arrivals of their chunks.
        window: The window.
    """
    found, counted_ns = 0.0, window.start_ns
    streams = (reply.arrivals_ns for reply in replies if reply.arrivals_ns)
    for arrivals_ns in sorted(streams, key=lambda each_ns: each_ns[0]):
        end_ns = min(arrivals_ns[-1], window.end_ns)
        if end_ns > counted_ns:
            found += _steps_until(arrivals_ns, end_ns) - _steps_until(arrivals_ns, counted_ns)
            counted_ns = end_ns
    return found


def _steps_until(arrivals_ns: Sequence[int], t_ns: int) -> float:
    """Return the steps from the first chunk of an answer to an instant, the one in progress by its share."""
    done = bisect_right(arrivals_ns, t_ns)
    if not 0 < done < len(arrivals_ns):
        return float(max(0, done - 1))
    last_ns, next_ns = arrivals_ns[done - 1 : done + 1]
    return done - 1 + (t_ns - last_ns) / (next_ns - last_ns)


def in_flight(outcomes: Outcomes, window: ProbeWindow) -> float:
    """Return the mean number of requests in flight in a window, from sending to end."""
    window_ns = window.end_ns - window.start_ns
    flights = [(x.start_ns, x.end_ns) for x in outcomes.replies]
    flights += [(x.start_ns, x.end_ns) for x in outcomes.failed]
    lasted_ns = sum(
        overlap(start_ns, end_ns, window.start_ns, window.end_ns) * (end_ns - start_ns)
        for start_ns, end_ns in flights
    )
    return lasted_ns / window_ns


def _summary(times_ms: Sequence[Mapping[str, float | None]], name: str) -> dict[str, float] | None:
    known = [each_ms for each in times_ms if (each_ms := each[name]) is not None]
    return summary(known) if known else None


def _is_good(times_ms: Mapping[str, float | None], bounds_ms: Mapping[str, float]) -> bool:
    """Return whether a request is within all bounds; one of a single token has no time per token."""
    known = ((times_ms[name], bound_ms) for name, bound_ms in bounds_ms.items())
    return all(time_ms is None or time_ms <= bound_ms for time_ms, bound_ms in known)
