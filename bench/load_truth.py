"""Do the figures of a load curve agree with a server's own record of when it sent each token?

Six timing laws (`scripted_server.py`), each in a closed and an open loop: mean, median and 90th percentile of
time to first token, time per token and time between chunks, and the throughput. The server and the client are
two processes with the same clock. Delays of the scheduler are in the times of both: on a busy machine multiply
the server's times by a larger --scale, so that they are small against them.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costprobe.adapters.probing.request import served_request
from costprobe.adapters.probing.served_settings import OpenAiProbeConfig
from costprobe.domain.costing.load.point import LoadStep
from costprobe_probes.served.session import ServedSession
from costprobe_probes.stats import summary

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
        if line_type == "served_result":
            self.result = fields

    def progress(self, *_: object) -> None:
        """Show nothing."""


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


def measured(url: str, step: LoadStep, scale: float) -> dict[str, Any]:
    """Measure a point as a probe does."""
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "chat",
            "kind": "openai",
            "model": "m",
            "url": url,
            "load": {
                "window": f"{WINDOW_S * scale}s",
                "window_max": f"{WINDOW_S * scale}s",
                "warmup": f"{WARMUP_S * scale}s",
                "tokens_in": 40,
                "tokens_out": 16,
                "shared_prefix": 0.5,
            },
        }
    )
    reports = Reports()
    document = json.loads(served_request(probe, energy=False, load=step).to_wire())
    ServedSession(reports).run(document)  # type: ignore[arg-type] # what it uses of a Wire
    return reports.result


def truth(records: list[dict[str, Any]], start_ns: int, end_ns: int) -> dict[str, float]:
    """Return the figures of a server's record in ms, and its tokens per second."""
    members = [each["sent"] for each in records if start_ns <= each["received_ns"] < end_ns]
    first_ms = [
        (each["sent"][0][0] - each["received_ns"]) / 1e6
        for each in records
        if start_ns <= each["received_ns"] < end_ns
    ]
    gaps = [(b[0] - a[0]) / 1e6 for sent in members for a, b in itertools.pairwise(sent)]
    per_token = [
        (sent[-1][0] - sent[0][0]) / 1e6 / (sum(tokens for _, tokens in sent) - 1)
        for sent in members
    ]
    found = {
        f"{name} {figure}": values.get(figure, 0.0)
        for name, values in (
            ("TTFT", summary(first_ms)),
            ("TPOT", summary(per_token)),
            ("ITL", summary(gaps)),
        )
        for figure in FIGURES
    }
    sent_all = (each for record in records for each in record["sent"])
    tokens = sum(count for sent_ns, count in sent_all if start_ns <= sent_ns < end_ns)
    return {**found, "tokens/s": tokens / (end_ns - start_ns) * 1e9}


def ours(result: dict[str, Any]) -> dict[str, float]:
    """Return the same figures of a point."""
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    found = {
        f"{name} {figure}": values.get(figure, 0.0)
        for name, values in (
            ("TTFT", result["ttft_ms"]),
            ("TPOT", result["tpot_ms"]),
            ("ITL", result["load"]["itl_ms"]),
        )
        for figure in FIGURES
    }
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
            result = measured(url, step, options.scale)
            with urllib.request.urlopen(f"{url}/records") as answer:  # noqa: S310 - ours
                records = json.load(answer)
        real = truth(records, result["window_start_ns"], result["window_end_ns"])
        errors_pct = {
            name: (value / real[name] - 1) * 100
            for name, value in ours(result).items()
            if real[name]
        }
        worst = max(errors_pct, key=lambda name: abs(errors_pct[name]))
        is_met = abs(errors_pct[worst]) <= GOAL_PCT
        rows.append(
            {"law": law, "loop": step.loop, "requests": result["samples"], "errors_pct": errors_pct}
        )
        print(
            f"{law:11} {step.loop:7} {result['samples']:5} requests, median"
            f" {statistics.median(map(abs, errors_pct.values())):.2f} %, largest"
            f" {errors_pct[worst]:+.2f} % ({worst}){'' if is_met else '  MISSED'}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(any(abs(pct) > GOAL_PCT for row in rows for pct in row["errors_pct"].values()))


if __name__ == "__main__":
    sys.exit(main())
