"""Run `vllm bench serve` once per line of stdin, which holds its options as a JSON list.

Written to stdout per run: a line with its result as JSON. The import of vLLM, which takes longer than a run,
happens once. Prompts are the lines of --dataset-path: its own reader needs pandas.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from vllm.benchmarks import serve
from vllm.benchmarks.datasets import SampleRequest
from vllm.utils.argparse_utils import FlexibleArgumentParser


def samples(args, tokenizer):
    """Return the requests of a run."""
    lines = Path(args.dataset_path).read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    return [
        SampleRequest(prompt, len(tokenizer(prompt).input_ids), args.custom_output_len)
        for prompt in prompts
    ]


def main():
    """Run until stdin ends."""
    results = sys.stdout
    serve.get_samples = samples
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            found = asyncio.run(serve.main_async(parser.parse_args(json.loads(line))))
        print(json.dumps(found, default=str), file=results, flush=True)


if __name__ == "__main__":
    main()
