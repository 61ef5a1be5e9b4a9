"""Run `vllm bench serve` once per line of stdin, which holds its options as JSON.

`instants_ns`, unless empty, are those of its requests, in CLOCK_MONOTONIC ns, instead of its own schedule. Written to
stdout per run: a line with its result as JSON. The import of vLLM, which takes longer than a run, happens once.
Prompts are the lines of --dataset-path: its own reader needs pandas.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

from vllm.benchmarks import serve
from vllm.benchmarks.datasets import SampleRequest
from vllm.utils.argparse_utils import FlexibleArgumentParser


def samples(args, tokenizer):
    """Return the requests of a run."""
    lines = map(json.loads, Path(args.dataset_path).read_text().splitlines())
    return [
        SampleRequest(
            line["prompt"], len(tokenizer(line["prompt"]).input_ids), line["output_tokens"]
        )
        for line in lines
    ]


def at(instants_ns):
    """Return the schedule of requests that begin at these instants."""

    async def schedule(requests, *_args, **_options):
        for request, instant_ns in zip(requests, instants_ns, strict=True):
            await asyncio.sleep(max(0, instant_ns - time.monotonic_ns()) / 1e9)
            yield request, 0.0

    return schedule


def main():
    """Run until stdin ends."""
    results = sys.stdout
    serve.get_samples = samples
    own_schedule = serve.get_request
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    for line in sys.stdin:
        asked = json.loads(line)
        instants_ns = asked["instants_ns"]
        serve.get_request = at(instants_ns) if instants_ns else own_schedule
        with contextlib.redirect_stdout(sys.stderr):
            found = asyncio.run(serve.main_async(parser.parse_args(asked["options"])))
        print(json.dumps(found, default=str), file=results, flush=True)


if __name__ == "__main__":
    main()
