"""The steps of a real vLLM, recorded in its engine, and what prefill and decode take of their time."""

import json
import shutil
import statistics
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from engines.engine import MODELS

PLUGIN = "vllm_steps"
# Fewer decode steps of as many sequences do not have a mean.
FEWEST_STEPS = 8


class Step(NamedTuple):
    """A step of the model: its times, prompt tokens, decoding sequences and their context."""

    start_ns: int
    end_ns: int
    prompt_tokens: int
    pairs: float
    decoding: int
    context: int
    cpu_ns: int


class Split(NamedTuple):
    """Seconds of prefill and decode in some steps, with their tokens."""

    prefill_s: float
    decode_s: float
    prompt_tokens: int
    decoded: int


def install_plugin(folder):
    """Write the plugin, which vLLM finds by its entry point; return the environment of the server."""
    place = folder / "plugins"
    about = place / f"{PLUGIN}-0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(MODELS / f"{PLUGIN}.py", place)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\nsteps = {PLUGIN}:register\n")
    return {"PYTHONPATH": str(place), "STEP_RECORD": str(folder / "steps.jsonl")}


def read_steps(folder):
    """All steps so far, with their seconds.

    What the engine does between two steps belongs to the first one, as the fixed time of a pass does
    in the simulator; unless no sequence continues, because the engine may then wait for requests.
    """
    lines = (folder / "steps.jsonl").read_text().splitlines()
    steps = [Step(*json.loads(line)) for line in lines]
    found = []
    for step, following in pairwise(steps):
        end_ns = following.start_ns if following.decoding else step.end_ns
        found.append((step, (end_ns - step.start_ns) / 1e9))
    return found


class DecodeTimes:
    """Seconds of a decode step without prompt tokens, by its sequences and their context.

    The mean of the recorded ones with as many sequences, and for each token of context more what
    least squares give over all of them.
    """

    def __init__(self, timed_steps):
        groups = defaultdict(list)
        for step, seconds in timed_steps:
            if step.decoding and not step.prompt_tokens:
                groups[step.decoding].append((step.context, seconds))
        self._means = {
            count: tuple(statistics.fmean(column) for column in zip(*group, strict=True))
            for count, group in groups.items()
            if len(group) >= FEWEST_STEPS
        }
        apart = [
            (context - self._means[count][0], seconds - self._means[count][1])
            for count, group in groups.items()
            if count in self._means
            for context, seconds in group
        ]
        squares = sum(x * x for x, _ in apart)
        self._per_token_s = max(0.0, sum(x * y for x, y in apart) / squares) if squares else 0.0

    def seconds(self, step):
        """The seconds of the decode part of a step."""
        nearest = min(self._means, key=lambda count: abs(count - step.decoding))
        context, seconds = self._means[nearest]
        context *= step.decoding / nearest
        return seconds + self._per_token_s * (step.context - context)


def split(timed_steps, decode_times, start_ns, end_ns):
    """Divide the seconds of the steps between two instants, as `bench/batching.py` divides a pass.

    A step alone of either kind is of that kind. Of one with both, a decode step of its sequences alone is
    decode, and what the prompt tokens add is prefill.
    """
    prefill_s = decode_s = 0.0
    prompt_tokens = decoded = 0
    for step, seconds in timed_steps:
        if not start_ns <= step.start_ns < end_ns:
            continue
        own_s = seconds if step.decoding else 0.0
        if step.decoding and step.prompt_tokens:
            own_s = min(seconds, decode_times.seconds(step))
        decode_s += own_s
        prefill_s += seconds - own_s
        prompt_tokens += step.prompt_tokens
        decoded += step.decoding
    return Split(prefill_s, decode_s, prompt_tokens, decoded)
