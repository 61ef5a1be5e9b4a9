"""Do the figures of a load curve agree with a server's own record of when it sent each token?

Six timing laws (`scripted_server.py`), each in a closed and an open loop: mean, median and 90th percentile of
time to first token, time per token and time between chunks, and the throughput. The server and the client are
two processes with the same clock. The requests of both are paired by the digits in their prompts, so that the
figures of both are those of the same requests. Delays of the scheduler are in the times of both: on a busy machine
multiply the server's times by a larger --scale, so that they are small against them.

Usage: python bench/load_truth.py [--scale N] [--only LAW,...] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costprobe.adapters.load_child.clients import OpenAiClient
from costprobe.adapters.load_child.connection import Reply, ServerConnection
from costprobe.adapters.load_child.load import Outcomes
from costprobe.adapters.load_child.main import Cohort, LoadPointRun
from costprobe.probing.load_curve import LoadStep
from costprobe.probing.run import served_request
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe_probes.stats import ProbeWindow, summary
from scripted_server import salt_of

LAWS = ("constant", "queue", "bursts", "stragglers", "cache", "batching")
# Below the capacity of each law: above it an open loop has no steady state. In requests per scaled second.
RATE_PER_S = 6.0
CONCURRENCY = 8
WARMUP_S, WINDOW_S = 3.0, 12.0
GOAL_PCT = 2.0
FIGURES = ("mean", "p50", "p90")


class Reports:
    """The worker's end of a pipe whose sensors read at once."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}
        self.marked = threading.Event()

    def report(self, line_type: str, /, **fields: Any) -> None:
        """Keep the result."""
        if line_type == "window_end":
            self.marked.set()
        if line_type == "result":
            self.result = fields

    def progress(self, *_: object) -> None:
        """Show nothing."""


class PairedClient(OpenAiClient):
    """Keeps the digits of the prompt that each reply answers, by the start of its request."""

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        super().__init__(request, base_path)
        self.salts: dict[int, str] = {}

    def _answer(self, body: bytes, connection: ServerConnection) -> Reply:
        reply = super()._answer(body, connection)
        self.salts[reply.start_ns] = salt_of(body)
        return reply


class PairedRun(LoadPointRun):
    """Keeps the requests whose latencies are reported."""

    def __init__(self, reports: Reports, request: dict[str, Any]) -> None:
        super().__init__(reports, request, 0.0)  # type: ignore[arg-type] # what it uses of a Wire
        self._client = self._paired = PairedClient(request, self._target.path)
        self.members: dict[str, Reply] = {}

    def _report(
        self, outcomes: Outcomes, members: Cohort, window: ProbeWindow, **more: float | None
    ) -> None:
        super()._report(outcomes, members, window, **more)
        self.members = {self._paired.salts[x.start_ns]: x for x in members.ended.replies}


@contextmanager
def scripted(law: str, scale: float) -> Iterator[str]:
    """Run the scripted server; yield its URL."""
    command = [sys.executable, str(Path(__file__).with_name("scripted_server.py")), law, str(scale)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline()) if process.stdout else 0
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def measured(url: str, step: LoadStep, scale: float) -> tuple[dict[str, Any], dict[str, Reply]]:
    """Measure a point as a probe does; return its result, and its requests by their digits."""
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "chat",
            "kind": "openai",
            "model": "m",
            "url": url,
            "load": {
                "window": f"{WINDOW_S * scale}s",
                "warmup": f"{WARMUP_S * scale}s",
                "tokens_in": 40,
                "tokens_out": 16,
                "shared_prefix": 0.5,
            },
        }
    )
    request = json.loads(served_request(probe, energy=False, load=step).to_wire())
    # A window that is not extended.
    request["load"]["window_max_s"] = WINDOW_S * scale
    reports = Reports()
    run = PairedRun(reports, request)
    run.run()
    return reports.result, run.members


def named(*values: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of times to first token, times per token and inter-token latencies by name."""
    return {
        f"{name} {figure}": found.get(figure, 0.0)
        for name, found in zip(("TTFT", "TPOT", "ITL"), values, strict=True)
        for figure in FIGURES
    }


def truth(
    records: dict[str, dict[str, Any]], members_of: Iterable[str], start_ns: int, end_ns: int
) -> dict[str, float]:
    """Return the figures of a server's record in ms, and its tokens per second.

    Args:
        records: All requests by their digits.
        members_of: Those of the point.
        start_ns: Start of its window.
        end_ns: End of it.
    """
    own = [records[salt] for salt in members_of]
    members = [each["sent"] for each in own]
    first_ms = [(each["sent"][0][0] - each["received_ns"]) / 1e6 for each in own]
    gaps = [(b[0] - a[0]) / 1e6 for sent in members for a, b in itertools.pairwise(sent)]
    per_token = [
        (sent[-1][0] - sent[0][0]) / 1e6 / (sum(tokens for _, tokens in sent) - 1)
        for sent in members
    ]
    found = named(summary(first_ms), summary(per_token), summary(gaps))
    sent_all = (each for record in records.values() for each in record["sent"])
    tokens = sum(count for sent_ns, count in sent_all if start_ns <= sent_ns < end_ns)
    return {**found, "tokens/s": tokens / (end_ns - start_ns) * 1e9}


def ours(result: dict[str, Any]) -> dict[str, float]:
    """Return the same figures of a point."""
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    found = named(result["ttft_ms"], result["tpot_ms"], result["itl_ms"])
    return {**found, "tokens/s": result["window_tokens_out"] / window_s}


def main() -> int:
    """Compare each law and loop; return 1 if a figure is beyond the goal."""
    parser = argparse.ArgumentParser(description="Figures under load against the server's record.")
    parser.add_argument("--scale", type=float, default=3.0)
    parser.add_argument("--only", default=",".join(LAWS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    steps = (
        LoadStep("closed", 1, concurrency=CONCURRENCY),
        LoadStep("open", 1, rate_per_s=RATE_PER_S / options.scale),
    )
    for law, step in itertools.product(options.only.split(","), steps):
        with scripted(law, options.scale) as url:
            result, members = measured(url, step, options.scale)
            with urllib.request.urlopen(f"{url}/records") as answer:  # noqa: S310 - ours
                records = {record["salt"]: record for record in json.load(answer)}
        real = truth(records, members, result["window_start_ns"], result["window_end_ns"])
        found = ours(result).items()
        errors_pct = {name: (x / real[name] - 1) * 100 for name, x in found if real[name]}
        worst = max(errors_pct, key=lambda name: abs(errors_pct[name]))
        is_met = abs(errors_pct[worst]) <= GOAL_PCT
        point = {"law": law, "loop": step.loop, "requests": result["samples"]}
        rows.append({**point, "errors_pct": errors_pct, "met": is_met})
        print(
            f"{law:11} {step.loop:7} {result['samples']:5} requests, median"
            f" {statistics.median(map(abs, errors_pct.values())):.2f} %, largest"
            f" {errors_pct[worst]:+.2f} % ({worst}){'' if is_met else '  MISSED'}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(not all(row["met"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
