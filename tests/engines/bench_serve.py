"""`vllm bench serve` in a process of its own, and its requests in the form of ours."""

import json
import os
import subprocess
from array import array
from contextlib import contextmanager
from itertools import accumulate

from costprobe.adapters.load_child.connection import Reply
from engines.engine import MODELS


@contextmanager
def bench_serve(engine, core):
    """Yield a function that runs it with more options on a processor core, and returns its result.

    With `instants_ns` its requests begin then, in CLOCK_MONOTONIC ns. A client of its own per run would spend
    most of the time with imports.
    """
    command = ["taskset", "-c", core, engine.python, MODELS / "vllm_bench.py"]
    env = {**os.environ, **engine.env(), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    env["HOME"] = str(engine.folder)
    with (
        (engine.folder / "bench-output").open("w") as output,
        subprocess.Popen(
            [str(part) for part in command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as process,
    ):

        def run(*options, instants_ns=()):
            asked = [
                "--backend", "openai", "--base-url", engine.url, "--endpoint", "/v1/completions",
                "--model", engine.model(), "--tokenizer", engine.folder / "tiny", "--ignore-eos",
                "--disable-tqdm", "--temperature", 0, "--save-detailed", *options,
            ]  # fmt: skip
            line = {"options": [str(part) for part in asked], "instants_ns": instants_ns}
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, (engine.folder / "bench-output").read_text()[-4000:]
            return json.loads(line)

        try:
            yield run
        finally:
            process.kill()


def replies_of(result):
    """The requests of a run by its own stamps, which are CLOCK_MONOTONIC as ours, by their start."""
    found = []
    columns = (result[name] for name in ("start_times", "ttfts", "itls", "output_lens"))
    for start_s, ttft_s, gaps_s, tokens in zip(*columns, strict=True):
        arrivals_s = accumulate(gaps_s, initial=start_s + ttft_s)
        arrivals_ns = array("q", (round(x * 1e9) for x in arrivals_s))
        start_ns = round(start_s * 1e9)
        found.append(Reply(start_ns, arrivals_ns[-1], arrivals_ns, tokens_out=tokens))
    return sorted(found, key=lambda reply: reply.start_ns)
