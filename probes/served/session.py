"""A worker's session with a server: each request to the worker is a load of requests to it."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from typing import Any

from probes.digest import fingerprint
from probes.errors import ConfigError
from probes.served import KINDS
from probes.served.explain import explained
from probes.served.http import Connection
from probes.served.load import JOIN_MARGIN_S, Load, Outcomes, Quota, counted
from probes.served.outcome import ServerError, ServerKind
from probes.served.region import LOOK_S, Edges, Region, held, steady_region
from probes.served.results import figures, tokens_counter
from probes.served.target import Target, target
from probes.wire import Wire

# Questions beside the load, which a server need not answer.
ASIDE_TIMEOUT_S = 2.0
# As probes.session has it, which needs torch.
ENERGY_REGION_MIN_S = 5.0
MAX_CONCURRENCY = 256
MAX_REQUESTS = 100_000


class ServedSession:
    """Runs requests on servers; keeps nothing between them.

    Args:
        wire: Where to report.
        least_region_s: Shortest region in seconds whose energy the sensors can tell.
    """

    def __init__(self, wire: Wire, least_region_s: float = ENERGY_REGION_MIN_S) -> None:
        self._wire = wire
        self._least_region_s = least_region_s
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        wire.report("hello", pid=os.getpid(), software={"python": python})

    def run(self, request: dict[str, Any]) -> None:
        """Runs one request and reports its result.

        Raises:
            ConfigError: The request asks for what is not there.
            ServerError: The server does not answer, or fails most requests.
        """
        ServedProbe(self._wire, request, self._least_region_s).run()


class ServedProbe:
    """One request's work on a server.

    It takes at most sample_cap_s and timeout_s for the warm-up and again for the timed requests,
    the region with its rise and tail, and some seconds for the name service and for questions
    beside the load.

    Args:
        wire: Where to report.
        request: What to run.
        least_region_s: Shortest region in seconds.

    Raises:
        ConfigError: The request asks for what is not there.
    """

    def __init__(self, wire: Wire, request: dict[str, Any], least_region_s: float) -> None:
        self._least_region_s = least_region_s
        self._started_s = time.monotonic()
        self._wire = wire
        self._request = request
        for name, most in (("concurrency", MAX_CONCURRENCY), ("requests", MAX_REQUESTS)):
            if not 1 <= request[name] <= most:
                raise ConfigError(f"{name} must be from 1 to {most}")
        if request["kind"] not in KINDS:
            raise ConfigError(f"kind {request['kind']!r}: there are {', '.join(sorted(KINDS))}")
        self._target: Target = target(request["url"], request["ca_file"], request["token_path"])
        module = importlib.import_module(KINDS[request["kind"]])
        self._kind: ServerKind = module.Server(request, self._target.path)

    def run(self) -> None:
        """Warms up, times, keeps the region, reports the result."""
        request = self._request
        if request["warmup_requests"]:
            # As many at a time as later, so that the server is warm for their batches too.
            self._counted("warmup", request["warmup_requests"])
        software = self._software()
        if request["energy"]:
            outcomes, region = self._with_region()
        else:
            outcomes = self._counted("latency", request["requests"])
            start_ns, end_ns = outcomes.span_ns()
            region = Region(start_ns, start_ns, end_ns, end_ns)
        self._report(outcomes, region, software)

    def _counted(self, phase: str, wanted: int) -> Outcomes:
        """A load that ends with so many answers."""
        request = self._request
        with self._load(Quota(wanted, wanted, request["sample_cap_s"])) as load:
            # The requests that are under way at the cap are still answered.
            self._watch(load, phase, wanted, request["timeout_s"] + JOIN_MARGIN_S)
        outcomes = load.outcomes()
        self._check(outcomes)
        return outcomes

    def _with_region(self) -> tuple[Outcomes, Region]:
        """A load that goes on without a gap from the timed requests into the region."""
        request = self._request
        with self._load(Quota(None, MAX_REQUESTS, math.inf)) as load:
            self._watch(load, "latency", request["requests"], 0.0)
            answered, failed = load.counts()
            if failed > answered:
                raise self._explained(load.outcomes())
            edges = Edges(
                region_s=max(request["region_s"], self._least_region_s),
                tail_s=request["tail_s"],
                marked=self._wire.marked,
                on_edge=lambda edge, t_ns: self._wire.report(edge, t_ns=t_ns),
            )
            region = steady_region(edges, lambda done: self._wire.progress("energy", done))
        outcomes = load.outcomes()
        self._check(outcomes.sent_before(region.steady_start_ns))
        self._check(outcomes.within(region.start_ns, region.end_ns))
        return outcomes, region

    def _watch(self, load: Load, phase: str, wanted: int, grace_s: float) -> None:
        """Waits until a load has its answers or its failures, or is past the cap and its grace."""
        ends_s = time.monotonic() + self._request["sample_cap_s"] + grace_s
        while True:
            answered, failed = load.counts()
            note = f"{answered} of {wanted}"
            self._wire.progress(phase, min(answered / wanted, 1.0), note)
            is_over = answered >= wanted or failed >= wanted or not load.is_on()
            if is_over or time.monotonic() >= ends_s:
                return
            time.sleep(LOOK_S)

    def _check(self, outcomes: Outcomes) -> None:
        if outcomes.is_mostly_failed():
            raise self._explained(outcomes)
        if not outcomes.replies:
            raise ServerError(f"{self._target.name}: no answer in time: set a longer sample_cap_s")

    def _explained(self, outcomes: Outcomes) -> Exception:
        return explained(outcomes, target=self._target, kind=self._kind, aside=self._aside())

    def _load(self, quota: Quota) -> Load:
        timeout_s = self._request["timeout_s"]
        return Load(
            self._kind,
            lambda: Connection(self._target, timeout_s),
            concurrency=self._request["concurrency"],
            quota=quota,
            timeout_s=timeout_s,
        )

    def _aside(self) -> Connection:
        return Connection(self._target, min(self._request["timeout_s"], ASIDE_TIMEOUT_S))

    def _software(self) -> dict[str, str]:
        """What is measured: the server, its model, and the work that it is given."""
        request, aside = self._request, self._aside()
        try:
            told = dict(self._kind.facts(aside))
        finally:
            aside.close()
        if aside.server:
            told["server"] = aside.server
        told.update(
            kind=request["kind"],
            address=self._target.name,
            model=request["model"],
            concurrency=str(request["concurrency"]),
        )
        return told

    def _report(self, outcomes: Outcomes, region: Region, software: dict[str, str]) -> None:
        request = self._request
        is_sampled_apart = bool(request["energy"])
        timed = outcomes.sent_before(region.steady_start_ns) if is_sampled_apart else outcomes
        source, tokens_out = tokens_counter(outcomes.replies)
        within = held(outcomes.replies, region.start_ns, region.end_ns, tokens_out)
        self._wire.report(
            "served_result",
            probe=request["probe"],
            requests=len(timed.replies) + len(timed.failed),
            concurrency=request["concurrency"],
            **figures(timed.replies, tokens_out),
            token_source=source,
            errors=counted(outcomes.failed),
            samples=len(timed.replies),
            stop_reason="runs" if len(timed.replies) >= request["requests"] else "time_cap",
            steady_start_ns=region.steady_start_ns,
            region_start_ns=region.start_ns,
            region_end_ns=region.end_ns,
            steady_end_ns=region.steady_end_ns,
            region_requests=within.requests,
            region_tokens_in=within.tokens_in,
            region_tokens_out=within.tokens_out,
            has_energy_window=bool(request["energy"]),
            busy_s=time.monotonic() - self._started_s,
            fingerprint=fingerprint(software),
            software=software,
        )
