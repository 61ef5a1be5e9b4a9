"""One point of a load curve: a server under a closed or an open loop, in a steady-state window."""

from __future__ import annotations

import math
import time
from typing import Any

from costprobe_probes.digest import fingerprint
from costprobe_probes.served.arrivals import PoissonArrivals
from costprobe_probes.served.http import Failure
from costprobe_probes.served.load import LoadGenerator, Outcomes, Quota, count_by_kind
from costprobe_probes.served.load_figures import (
    Cohort,
    cohort,
    decode_steps,
    in_flight,
    load_figures,
    tokens_within,
)
from costprobe_probes.served.outcome import Failed, ServerError
from costprobe_probes.served.results import figures, is_cached, tokens_counter
from costprobe_probes.served.server_run import ServerRun
from costprobe_probes.served.window import POLL_S, mark_steady_window, work_within
from costprobe_probes.window import ProbeWindow, WindowSettings, random_phase_s

MAX_FAILURES = 100_000


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
        software = self._software()
        hits = self._cache_hits()
        arrivals = None
        if load["loop"] == "open":
            arrivals = PoissonArrivals(load["rate_per_s"], time.monotonic_ns(), load["seed"])
        generator = self._generator(arrivals)
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
            raise self._unanswered(outcomes)
        # The interpreter runs on one processor: with most of it in use, its timing is late.
        busy_share = cpu_s * 1e9 / (window.steady_end_ns - window.steady_start_ns)
        self._report(
            outcomes,
            members,
            window,
            {
                "software": software,
                "fingerprint": fingerprint(software),
                "client_busy_share": busy_share,
                "hits": self._hits_since(hits),
                "offered": begun,
            },
        )

    def _prepare(self) -> None:
        connection = self._connection()
        start_ns = time.monotonic_ns()
        try:
            self._client.prepare(connection)
        except Failure as failure:
            failed = Failed(start_ns, time.monotonic_ns(), failure.kind, str(failure))
            raise self._explained(Outcomes([], [failed])) from None
        finally:
            connection.close()

    def _generator(self, arrivals: PoissonArrivals | None) -> LoadGenerator:
        load, timeout_s = self._request["load"], self._request["timeout_s"]
        return LoadGenerator(
            self._client,
            self._connection,
            concurrency=load["concurrency"],
            quota=Quota(None, MAX_FAILURES, math.inf),
            timeout_s=timeout_s,
            arrivals=arrivals,
        )

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
        settings = WindowSettings(
            window_s=max(load["window_s"], self._min_window_s),
            tail_s=self._request["tail_s"],
            marked=self._wire.marked,
            on_edge=lambda edge, t_ns: self._wire.report(edge, t_ns=t_ns),
            phase_s=random_phase_s(),
        )
        # Requests in flight at the start end in the window, but did not begin in it.
        before = sum(generator.counts()) + generator.pending()
        return mark_steady_window(
            settings,
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

    def _unanswered(self, outcomes: Outcomes) -> Exception:
        if outcomes.failed:
            return self._explained(outcomes)
        return ServerError(
            f"{self._target.name}: no request of the window was answered: set a longer window"
        )

    def _report(
        self, outcomes: Outcomes, members: Cohort, window: ProbeWindow, more: dict[str, Any]
    ) -> None:
        request, load = self._request, self._request["load"]
        source, tokens_out = tokens_counter(outcomes.replies)
        window_s = (window.end_ns - window.start_ns) / 1e9
        work = work_within(outcomes.replies, window.start_ns, window.end_ns, tokens_out)
        found = load_figures(members, window, load["slo_ms"], tokens_out)
        replies = members.ended.replies
        basic = figures(replies, tokens_out)
        self._wire.report(
            "served_result",
            **{**basic, **{name: found.pop(name) for name in ("latency_ms", "ttft_ms", "tpot_ms")}},
            requests=found.pop("requests"),
            concurrency=load["concurrency"],
            token_source=source,
            cached=is_cached(outcomes.replies, more["hits"], varies=request.get("vary_prompt")),
            errors={
                **count_by_kind(members.ended.failed),
                **({"unfinished": members.unfinished} if members.unfinished else {}),
            },
            samples=len(replies),
            stop_reason="window",
            steady_start_ns=window.steady_start_ns,
            window_start_ns=window.start_ns,
            window_end_ns=window.end_ns,
            steady_end_ns=window.steady_end_ns,
            window_requests=work.requests,
            window_tokens_in=work.tokens_in,
            window_tokens_out=tokens_within(outcomes.replies, window, tokens_out),
            has_energy_window=bool(request["energy"]),
            busy_s=time.monotonic() - self._started_s,
            fingerprint=more["fingerprint"],
            software=more["software"],
            load={
                **{name: found[name] for name in ("itl_ms", "goodput_per_s", "late_ms")},
                "offered_per_s": None if more["offered"] is None else more["offered"] / window_s,
                "in_flight": in_flight(outcomes, window),
                "decode_steps": decode_steps(outcomes.replies, window),
                "client_busy_share": more["client_busy_share"],
            },
        )
