"""The child that loads a server with requests: reads runs on standard input, reports on standard output.

The daemon runs it as `python -m costprobe.adapters.load_child.main`, under its own interpreter. Its input
and output are those of the probe child, `costprobe_probes.wire`.

Latencies of a point of a load curve are those of the requests that began within its window, each
followed to its end while the load continues. Taking the requests that also ended within it would omit
long ones more often than short ones, and stragglers most of all. Throughput is the work within the
window, whichever request it belongs to.
"""

from __future__ import annotations

import math
import os
import pkgutil
import statistics
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, Final, NamedTuple

from costprobe_probes.stats import (
    ENERGY_WINDOW_MIN_S,
    ProbeWindow,
    WindowSettings,
    summary,
)
from costprobe_probes.wire import (
    ProbeConfigError,
    Wire,
    describe,
    fingerprint,
    kind_of,
    prepare_process,
)

from costprobe.adapters.host.processes import forbid_core_dumps
from costprobe.adapters.load_child.clients import ServerClient
from costprobe.adapters.load_child.connection import (
    Failure,
    Reply,
    ServerConnection,
    ServerError,
    parse_target,
)
from costprobe.adapters.load_child.kinds import SERVERS
from costprobe.adapters.load_child.load import (
    JOIN_MARGIN_S,
    POLL_S,
    LoadGenerator,
    Outcomes,
    PoissonArrivals,
    Quota,
    count_by_kind,
    mark_steady_window,
    overlap,
    work_within,
)

# Timeout of optional queries, in s.
QUERY_TIMEOUT_S: Final = 2.0
MAX_REQUESTS: Final = 100_000
# A share from which on a cache has answered most of the work.
MOST: Final = 0.5
_CREDENTIALS: Final = {"http_401", "http_403"}
# Statuses of the 4xx class that ask the client to retry later.
_LATER: Final = {"http_408", "http_425", "http_429"}
_HINTS: Final = {
    "refused": "check that the server is running, and url",
    "unreachable": "check url and the network",
    "timeout": "set a longer timeout_s, or a smaller max_tokens or concurrency",
    "tls": "check that ca_file contains the server's certificate authority",
    "no_tokens": "set another prompt",
}

# Returns the tokens that a request generated; None if unknown.
TokensOut = Callable[[Reply], int | None]


class Cohort(NamedTuple):
    """The requests that began within a window.

    Attributes:
        ended: Those with an answer or a failure.
        unfinished: The others: without an answer when the load ended, or never sent.
    """

    ended: Outcomes
    unfinished: int


def cohort(outcomes: Outcomes, window: ProbeWindow, begun: int | None) -> Cohort:
    """Return the requests that began within a window.

    Args:
        outcomes: Outcomes of all requests.
        window: The window.
        begun: Requests that began within it; None if all of them ended.
    """
    ended = outcomes.where(lambda x: window.start_ns <= x.begin_ns < window.end_ns)
    return Cohort(ended, 0 if begun is None else max(begun - len(ended.ended), 0))


def tokens_counter(replies: Sequence[Reply]) -> tuple[str | None, TokensOut]:
    """Choose how generated tokens are counted, the same way for all requests.

    Args:
        replies: All answered requests.

    Returns:
        "usage" if the server counted tokens in every response; else "chunks", where a chunk of the
        stream counts as a token; None without streams. And the function that counts.
    """
    if any(x.arrivals_ns is None for x in replies):
        return None, lambda _: None
    if all(x.tokens_out is not None for x in replies):
        return "usage", lambda x: x.tokens_out
    return "chunks", lambda x: len(x.arrivals_ns or ())


def figures(replies: Sequence[Reply], tokens_out: TokensOut) -> dict[str, Any]:
    """Return summaries in ms, and mean token counts; None where there are no values.

    Args:
        replies: Timed requests, at least one.
        tokens_out: Returns the tokens that a request generated.
    """
    times_ms = [times(reply, tokens_out(reply)) for reply in replies]
    found = {
        name: [each_ms for of_one in times_ms if (each_ms := of_one[name]) is not None]
        for name in ("latency", "ttft", "tpot")
    }
    return {
        **{f"{name}_ms": summary(values) if values else None for name, values in found.items()},
        "tokens_in": _mean([x.tokens_in for x in replies]),
        "tokens_out": _mean([tokens_out(x) for x in replies]),
        "cached_tokens": _mean(_cached_tokens(replies)),
    }


def load_figures(
    members: Cohort, window: ProbeWindow, bounds_ms: Mapping[str, float], tokens_out: TokensOut
) -> dict[str, Any]:
    """Return the figures of a point of a load curve: those of all runs, gaps between chunks, and goodput.

    Args:
        members: The requests of its window, with at least one answer.
        window: The window.
        bounds_ms: The longest "latency", "ttft" and "tpot" of a good answer, in ms; empty without
            a service level.
        tokens_out: Returns the tokens that a request generated.
    """
    replies = members.ended.replies
    gaps_ms = [
        (after - before) / 1e6
        for reply in replies
        for before, after in pairwise(reply.arrivals_ns or ())
    ]
    window_s = (window.end_ns - window.start_ns) / 1e9
    # Of a single token there is no time per token: it is within any bound.
    good = sum(
        all((times_ms[name] or 0.0) <= bound_ms for name, bound_ms in bounds_ms.items())
        for times_ms in (times(reply, tokens_out(reply)) for reply in replies)
    )
    return {
        **figures(replies, tokens_out),
        "itl_ms": summary(gaps_ms) if gaps_ms else None,
        "goodput_per_s": good / window_s if bounds_ms else None,
        "late_ms": statistics.fmean((x.start_ns - x.begin_ns) / 1e6 for x in replies),
    }


def times(reply: Reply, tokens_out: int | None) -> dict[str, float | None]:
    """Return the latency of a request, its time to first token and its time per token, in ms.

    Latency and time to first token count from when its user began to wait. The time per token is unknown
    with fewer than two tokens, or if all text arrives in one chunk.
    """
    arrivals_ns, ttft_ms, tpot_ms = reply.arrivals_ns, None, None
    if arrivals_ns:
        ttft_ms = (arrivals_ns[0] - reply.begin_ns) / 1e6
        apart_ns = arrivals_ns[-1] - arrivals_ns[0]
        if tokens_out is not None and tokens_out > 1 and apart_ns > 0:
            tpot_ms = apart_ns / (tokens_out - 1) / 1e6
    return {"latency": (reply.end_ns - reply.begin_ns) / 1e6, "ttft": ttft_ms, "tpot": tpot_ms}


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
    lasted_ns = sum(
        overlap(x.start_ns, x.end_ns, window.start_ns, window.end_ns) * (x.end_ns - x.start_ns)
        for x in outcomes.ended
    )
    return lasted_ns / window_ns


def is_cached(replies: Sequence[Reply], hits: int | None, *, varies: bool | None) -> bool | None:
    """Return whether a cache of the server answered most of the work; None if unknown.

    Args:
        replies: Answered requests, at least one.
        hits: Requests that the server's response cache answered meanwhile; None if unknown.
        varies: Whether each prompt differed from its first token; None where there is no prompt.
    """
    if hits is not None:
        return hits >= MOST * len(replies)
    cached = _mean(_cached_tokens(replies))
    tokens_in = _mean([x.tokens_in for x in replies])
    if cached is not None and tokens_in:
        return cached >= MOST * tokens_in
    # Without a count, a repeated prompt has to be taken as cached.
    return None if varies is None else not varies


def _cached_tokens(replies: Sequence[Reply]) -> Sequence[int | None]:
    """Return the cached tokens of each request; vLLM omits a count of 0, so that none is 0 beside others."""
    counts = [x.cached_tokens for x in replies]
    return [count or 0 for count in counts] if any(counts) else counts


def _mean(counts: Sequence[int | None]) -> float | None:
    known_counts = [count for count in counts if count is not None]
    return (
        statistics.fmean(known_counts)
        if known_counts and len(known_counts) == len(counts)
        else None
    )


class ServerRun:
    """What every run against a server shares: the server, its client, and the identity of both.

    Args:
        wire: Pipe to the daemon.
        request: The request, as parsed JSON.
        min_window_s: Shortest window in seconds.

    Raises:
        ProbeConfigError: The request is invalid.
    """

    def __init__(self, wire: Wire, request: dict[str, Any], min_window_s: float) -> None:
        self._min_window_s = min_window_s
        self._started_s = time.monotonic()
        self._wire = wire
        self._request = request
        key = request["key_file"] and (request["key_header"], request["key_file"])
        self._target = parse_target(
            request["url"], request["ca_file"], request["token_file"], request["headers"], key
        )
        client = pkgutil.resolve_name(SERVERS[request["kind"]])
        self._client: ServerClient = client(request, self._target.path)
        self._software: dict[str, str] = {}
        self._hits: int | None = None

    def _identify(self) -> None:
        """Learn what is measured, the server, its model and the workload, and the hits of its cache so far."""
        with closing(self._query_connection()) as connection:
            facts = dict(self._client.facts(connection))
            if connection.server:
                facts["server"] = connection.server
            self._hits = self._client.cache_hits(connection)
        request = self._request
        facts.update(kind=request["kind"], address=self._target.name, model=request["model"])
        self._software = facts

    def _hits_since(self) -> int | None:
        """Return the requests that the server's response cache answered since `_identify`."""
        if self._hits is None:
            return None
        with closing(self._query_connection()) as connection:
            hits = self._client.cache_hits(connection)
        return None if hits is None else hits - self._hits

    def _load(
        self, concurrency: int, quota: Quota, arrivals: PoissonArrivals | None = None
    ) -> LoadGenerator:
        return LoadGenerator(
            self._client,
            self._connection,
            concurrency=concurrency,
            quota=quota,
            timeout_s=self._request["timeout_s"],
            arrivals=arrivals,
        )

    def _window_settings(self, window_s: float) -> WindowSettings:
        window_s = max(window_s, self._min_window_s)
        return WindowSettings.of(self._wire, window_s, self._request["tail_s"])

    def _report_result(
        self,
        outcomes: Outcomes,
        window: ProbeWindow,
        **own: Any,  # noqa: ANN401 - any JSON value
    ) -> None:
        """Report what the results of all runs have, and what this run's has of its own."""
        request = self._request
        source, tokens_out = tokens_counter(outcomes.replies)
        work = work_within(outcomes.replies, window.start_ns, window.end_ns, tokens_out)
        hits, items = self._hits_since(), outcomes.replies[0].items
        common = {
            "batch": items,
            "token_source": source,
            "cached": is_cached(outcomes.replies, hits, varies=request.get("vary_prompt")),
            "steady_start_ns": window.steady_start_ns,
            "window_start_ns": window.start_ns,
            "window_end_ns": window.end_ns,
            "steady_end_ns": window.steady_end_ns,
            "inferences": work.requests * items,
            "window_tokens_in": work.tokens_in,
            "window_tokens_out": work.tokens_out,
            "has_energy_window": bool(request["energy"]),
            "busy_s": time.monotonic() - self._started_s,
            "fingerprint": fingerprint(self._software),
            "software": self._software,
        }
        self._wire.report("result", **{**common, **own})

    def _check(self, outcomes: Outcomes) -> None:
        if outcomes.is_mostly_failed():
            raise self._explained(outcomes)
        if not outcomes.replies:
            raise ServerError(
                f"{self._target.name}: no response in time: set a longer sample_cap_s"
            )

    def _explained(self, outcomes: Outcomes) -> Exception:
        """Return an error that names the most frequent failure of a load, at least one, and its fix."""
        common = next(iter(count_by_kind(outcomes.failed)))
        example = next(x for x in outcomes.failed if x.failure == common)
        reason = example.message or "no reason given"
        failed = len(outcomes.failed)
        sent = failed + len(outcomes.replies)
        text = f"{self._target.name}: {failed} of {sent} requests failed, mostly {common}"
        status = common.removeprefix("http_") if common.startswith("http_") else ""
        if common in _CREDENTIALS:
            is_sent = "Authorization" in self._target.headers
            token = "a valid token" if is_sent else "the server's token"
            return ProbeConfigError(
                f'{text}: set token = "file:/PATH" to a file that holds {token}'
            )
        if common == "http_404":
            return ProbeConfigError(f"{text}: {self._unknown_model()}")
        if status.startswith("3"):
            return ProbeConfigError(
                f"{text}: it redirects, and redirects are not followed; set url to the target"
            )
        if status.startswith("4") and common not in _LATER:
            return ProbeConfigError(f"{text}: {reason}; {self._unknown_model()}")
        if common == "tls":
            return ProbeConfigError(f"{text}: {reason}; {_HINTS[common]}")
        return ServerError(f"{text}: {reason}; {_HINTS.get(common, 'see the server log')}")

    def _unknown_model(self) -> str:
        with closing(self._query_connection()) as connection:
            offers = self._client.model_names(connection)
        if offers:
            return f"set model to one of its models ({', '.join(offers)})"
        return "check url and model; it lists no models"

    def _connection(self) -> ServerConnection:
        return ServerConnection(self._target, self._request["timeout_s"])

    def _query_connection(self) -> ServerConnection:
        return ServerConnection(self._target, min(self._request["timeout_s"], QUERY_TIMEOUT_S))


class ServedProbeRun(ServerRun):
    """One run of a probe against a server.

    It takes at most sample_cap_s and timeout_s for the warm-up and again for the timed requests,
    plus the window with its rise and tail, and some seconds for name resolution and queries.

    Args:
        wire: Pipe to the daemon.
        request: The request, as parsed JSON.
        min_window_s: Shortest window in seconds.

    Raises:
        ProbeConfigError: The request is invalid.
    """

    def run(self) -> None:
        """Warm up, time requests, mark the steady-state window, report the result."""
        request = self._request
        if request["warmup_requests"]:
            # With the concurrency of the timed requests, so that the server is warm for their batches.
            self._run_counted("warmup", request["warmup_requests"])
        self._identify()
        self._software["concurrency"] = str(request["concurrency"])
        if request["energy"]:
            outcomes, window = self._run_with_window()
        else:
            outcomes = self._run_counted("latency", request["requests"])
            start_ns, end_ns = outcomes.span_ns()
            window = ProbeWindow(start_ns, start_ns, end_ns, end_ns)
        self._report(outcomes, window)

    def _run_counted(self, phase: str, wanted: int) -> Outcomes:
        """Run a load that ends after a number of answers."""
        request = self._request
        with self._load(
            request["concurrency"], Quota(wanted, wanted, request["sample_cap_s"])
        ) as load:
            # Requests in flight at the cap are still answered.
            self._watch(load, phase, wanted, request["timeout_s"] + JOIN_MARGIN_S)
        outcomes = load.outcomes()
        self._check(outcomes)
        return outcomes

    def _run_with_window(self) -> tuple[Outcomes, ProbeWindow]:
        """Run a load without a gap from the timed requests into the window."""
        request = self._request
        with self._load(request["concurrency"], Quota(None, MAX_REQUESTS, math.inf)) as load:
            self._watch(load, "latency", request["requests"], 0.0)
            answered, failed = load.counts()
            if failed > answered:
                raise self._explained(load.outcomes())
            window = mark_steady_window(
                self._window_settings(request["window_s"]),
                lambda done: self._wire.progress("energy", done),
            )
        outcomes = load.outcomes()
        self._check(outcomes.sent_before(window.steady_start_ns))
        self._check(outcomes.within(window.start_ns, window.end_ns))
        return outcomes, window

    def _watch(self, load: LoadGenerator, phase: str, wanted: int, grace_s: float) -> None:
        """Wait until a load has its answers or its failures, or exceeds the cap and its grace time."""
        ends_s = time.monotonic() + self._request["sample_cap_s"] + grace_s
        while True:
            answered, failed = load.counts()
            note = f"{answered} of {wanted}"
            self._wire.progress(phase, min(answered / wanted, 1.0), note)
            is_over = answered >= wanted or failed >= wanted or not load.is_running()
            if is_over or time.monotonic() >= ends_s:
                return
            time.sleep(POLL_S)

    def _report(self, outcomes: Outcomes, window: ProbeWindow) -> None:
        request = self._request
        # Requests of the window were sent under the same load, and give percentiles more samples.
        timed = outcomes.sent_before(window.end_ns) if request["energy"] else outcomes
        _, tokens_out = tokens_counter(outcomes.replies)
        self._report_result(
            outcomes,
            window,
            **figures(timed.replies, tokens_out),
            requests=len(timed.ended),
            tags={"concurrency": str(request["concurrency"])},
            errors=count_by_kind(outcomes.failed),
            samples=len(timed.replies),
            stop_reason="runs" if len(timed.replies) >= request["requests"] else "time_cap",
        )


class LoadPointRun(ServerRun):
    """One point of a load curve.

    The warm-up lasts `warmup_s`, and until each connection of a closed loop had an answer. The
    window lasts `window_s`, and up to `window_max_s` until `samples` requests ended. The load
    continues until all requests that began in the window have ended, for at most `timeout_s`.
    """

    def run(self) -> None:
        """Warm up, mark the window, follow its requests to their ends, report the result.

        Raises:
            ServerError: No request of the window was answered.
            ProbeConfigError: The request is invalid.
        """
        load = self._request["load"]
        self._prepare()
        self._identify()
        arrivals = None
        if load["loop"] == "open":
            arrivals = PoissonArrivals(load["rate_per_s"], time.monotonic_ns(), load["seed"])
        generator = self._load(load["concurrency"], Quota(None, MAX_REQUESTS, math.inf), arrivals)
        with generator:
            self._warm_up(generator)
            began_cpu_s = time.process_time()
            window = self._window(generator)
            cpu_s = time.process_time() - began_cpu_s
            self._follow(generator, window)
        outcomes = generator.outcomes()
        begun = None if arrivals is None else arrivals.count(window.start_ns, window.end_ns)
        members = cohort(outcomes, window, begun)
        if not members.ended.replies:
            words = "no request of the window was answered: set a longer window"
            raise (
                self._explained(outcomes)
                if outcomes.failed
                else ServerError(f"{self._target.name}: {words}")
            )
        # The interpreter runs on one processor: with most of it in use, its timing is late.
        busy_share = cpu_s * 1e9 / (window.steady_end_ns - window.steady_start_ns)
        window_s = (window.end_ns - window.start_ns) / 1e9
        self._report(
            outcomes,
            members,
            window,
            offered_per_s=None if begun is None else begun / window_s,
            client_busy_share=busy_share,
        )

    def _prepare(self) -> None:
        start_ns = time.monotonic_ns()
        try:
            with closing(self._connection()) as connection:
                self._client.prepare(connection)
        except Failure as failure:
            end_ns, message = time.monotonic_ns(), str(failure)
            failed = Reply(start_ns, end_ns, failure=failure.kind, message=message)
            raise self._explained(Outcomes([], [failed])) from None

    def _warm_up(self, generator: LoadGenerator) -> None:
        load = self._request["load"]
        wanted = load["concurrency"] if load["loop"] == "closed" else 1
        warmup_s = load["warmup_s"]
        began_s = time.monotonic()
        while True:
            elapsed_s = time.monotonic() - began_s
            answered, failed = generator.counts()
            self._wire.progress("warmup", min(elapsed_s / warmup_s, 1.0) if warmup_s else 1.0)
            is_warm = elapsed_s >= warmup_s and answered + failed >= wanted
            if is_warm or elapsed_s >= warmup_s + self._request["timeout_s"]:
                break
            if not generator.is_running():
                break
            time.sleep(POLL_S)
        outcomes = generator.outcomes()
        if outcomes.failed and outcomes.is_mostly_failed():
            raise self._explained(outcomes)

    def _window(self, generator: LoadGenerator) -> ProbeWindow:
        load = self._request["load"]
        # Requests in flight at the start end in the window, but did not begin in it.
        before = sum(generator.counts()) + generator.pending()
        return mark_steady_window(
            self._window_settings(load["window_s"]),
            lambda done: self._wire.progress("window", done),
            is_enough=lambda: sum(generator.counts()) - before >= load["samples"],
            longest_s=load["window_max_s"],
        )

    def _follow(self, generator: LoadGenerator, window: ProbeWindow) -> None:
        """Keep the load until the requests of the window have ended."""
        ends_s = time.monotonic() + self._request["timeout_s"]
        while not generator.is_settled(window.end_ns) and time.monotonic() < ends_s:
            self._wire.progress("follow", 0.0)
            time.sleep(POLL_S)

    def _report(
        self, outcomes: Outcomes, members: Cohort, window: ProbeWindow, **more: float | None
    ) -> None:
        load = self._request["load"]
        _, tokens_out = tokens_counter(outcomes.replies)
        found = load_figures(members, window, load["slo_ms"], tokens_out)
        errors = count_by_kind(members.ended.failed)
        if members.unfinished:
            errors["unfinished"] = members.unfinished
        self._report_result(
            outcomes,
            window,
            **found,
            requests=len(members.ended.ended) + members.unfinished,
            tags={"concurrency": str(load["concurrency"])},
            errors=errors,
            samples=len(members.ended.replies),
            stop_reason="window",
            window_tokens_out=tokens_within(outcomes.replies, window, tokens_out),
            in_flight=in_flight(outcomes, window),
            decode_steps=decode_steps(outcomes.replies, window),
            **more,
        )


def measure(wire: Wire, request: dict[str, Any], min_window_s: float = ENERGY_WINDOW_MIN_S) -> None:
    """Run one request and report its result; no state remains between requests.

    Args:
        wire: Pipe to the daemon.
        request: The request, as parsed JSON.
        min_window_s: Shortest window in seconds whose energy the sensors can resolve.

    Raises:
        ProbeConfigError: The request is invalid.
        ServerError: The server does not answer, or fails most requests.
    """
    kind = LoadPointRun if request.get("load") else ServedProbeRun
    kind(wire, request, min_window_s).run()


def serve(wire: Wire) -> None:
    """Run requests until standard input ends."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wire.report("handshake", pid=os.getpid(), software={"python": python})
    while True:
        request = wire.request()
        try:
            measure(wire, request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the daemon reports it
            wire.report("error", kind=kind_of(error), message=describe(error, None))


def main() -> None:
    """Run requests until the daemon closes the pipe."""
    wire = Wire()
    prepare_process()
    forbid_core_dumps()
    serve(wire)


if __name__ == "__main__":
    main()
