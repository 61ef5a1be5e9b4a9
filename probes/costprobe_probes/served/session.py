"""Probes of a server: each request to the worker is a load of requests to the server."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any

from costprobe_probes.digest import fingerprint
from costprobe_probes.served.load import (
    JOIN_MARGIN_S,
    LoadGenerator,
    Outcomes,
    Quota,
    count_by_kind,
)
from costprobe_probes.served.load_point import LoadPointRun
from costprobe_probes.served.results import figures, is_cached, tokens_counter
from costprobe_probes.served.server_run import ServerRun
from costprobe_probes.served.window import POLL_S, mark_steady_window, work_within
from costprobe_probes.window import ENERGY_WINDOW_MIN_S, ProbeWindow, WindowSettings, random_phase_s
from costprobe_probes.wire import Wire

MAX_REQUESTS = 100_000


class ServedSession:
    """Run requests against servers; no state between them.

    Args:
        wire: Pipe to the daemon.
        min_window_s: Shortest window in seconds whose energy the sensors can resolve.
    """

    def __init__(self, wire: Wire, min_window_s: float = ENERGY_WINDOW_MIN_S) -> None:
        self._wire = wire
        self._min_window_s = min_window_s
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        wire.report("handshake", pid=os.getpid(), software={"python": python})

    def run(self, request: dict[str, Any]) -> None:
        """Run one request and report its result.

        Raises:
            ProbeConfigError: The request is invalid.
            ServerError: The server does not answer, or fails most requests.
        """
        kind = LoadPointRun if request.get("load") else ServedProbeRun
        kind(self._wire, request, self._min_window_s).run()


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
        software = {**self._software(), "concurrency": str(request["concurrency"])}
        hits = self._cache_hits()
        if request["energy"]:
            outcomes, window = self._run_with_window()
        else:
            outcomes = self._run_counted("latency", request["requests"])
            start_ns, end_ns = outcomes.span_ns()
            window = ProbeWindow(start_ns, start_ns, end_ns, end_ns)
        self._report(outcomes, window, software, self._hits_since(hits))

    def _run_counted(self, phase: str, wanted: int) -> Outcomes:
        """Run a load that ends after a number of answers."""
        request = self._request
        with self._load(Quota(wanted, wanted, request["sample_cap_s"])) as load:
            # Requests in flight at the cap are still answered.
            self._watch(load, phase, wanted, request["timeout_s"] + JOIN_MARGIN_S)
        outcomes = load.outcomes()
        self._check(outcomes)
        return outcomes

    def _run_with_window(self) -> tuple[Outcomes, ProbeWindow]:
        """Run a load without a gap from the timed requests into the window."""
        request = self._request
        with self._load(Quota(None, MAX_REQUESTS, math.inf)) as load:
            self._watch(load, "latency", request["requests"], 0.0)
            answered, failed = load.counts()
            if failed > answered:
                raise self._explained(load.outcomes())
            settings = WindowSettings(
                window_s=max(request["window_s"], self._min_window_s),
                tail_s=request["tail_s"],
                marked=self._wire.marked,
                on_edge=lambda edge, t_ns: self._wire.report(edge, t_ns=t_ns),
                phase_s=random_phase_s(),
            )
            window = mark_steady_window(settings, lambda done: self._wire.progress("energy", done))
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

    def _load(self, quota: Quota) -> LoadGenerator:
        timeout_s = self._request["timeout_s"]
        return LoadGenerator(
            self._client,
            self._connection,
            concurrency=self._request["concurrency"],
            quota=quota,
            timeout_s=timeout_s,
        )

    def _report(
        self, outcomes: Outcomes, window: ProbeWindow, software: dict[str, str], hits: int | None
    ) -> None:
        request = self._request
        has_window = bool(request["energy"])
        # Requests of the window were sent under the same load, and give percentiles more samples.
        timed = outcomes.sent_before(window.end_ns) if has_window else outcomes
        source, tokens_out = tokens_counter(outcomes.replies)
        work = work_within(outcomes.replies, window.start_ns, window.end_ns, tokens_out)
        self._wire.report(
            "served_result",
            requests=len(timed.replies) + len(timed.failed),
            concurrency=request["concurrency"],
            **figures(timed.replies, tokens_out),
            token_source=source,
            cached=is_cached(outcomes.replies, hits, varies=request.get("vary_prompt")),
            errors=count_by_kind(outcomes.failed),
            samples=len(timed.replies),
            stop_reason="runs" if len(timed.replies) >= request["requests"] else "time_cap",
            steady_start_ns=window.steady_start_ns,
            window_start_ns=window.start_ns,
            window_end_ns=window.end_ns,
            steady_end_ns=window.steady_end_ns,
            window_requests=work.requests,
            window_tokens_in=work.tokens_in,
            window_tokens_out=work.tokens_out,
            has_energy_window=bool(request["energy"]),
            busy_s=time.monotonic() - self._started_s,
            fingerprint=fingerprint(software),
            software=software,
        )
