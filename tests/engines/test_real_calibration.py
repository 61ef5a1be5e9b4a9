"""The calibrated division between prompt and generated tokens, on a real vLLM on the CPU. `make soak` runs it.

The truth is measured in the engine, step by step (`engine_steps.py`). Each case is measured as `costprobe calibrate`
measures, at its own concurrency, in shorter windows: a step takes milliseconds here. `bench/vllm.py` runs it
alone and writes a page.
"""

import json
import os
import random
from itertools import product
from pathlib import Path

import pytest
from costprobe.adapters.load_child.main import measure
from costprobe.probing.load_curve import LoadStep
from costprobe.probing.run import served_request
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe.serving.meter import Counts
from costprobe.serving.tokens import CalibrationWindow, LengthMix, calibrated, calibration_mixes
from engines.engine_steps import DecodeTimes, install_plugin, read_steps, split
from engines.environment import running
from engines.run_vllm import Vllm
from fakes.inference_server import Notes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
MODEL_CORE, OTHER_CORE = 0, 1
SIZE = (512, 6)
MIXES = (LengthMix(192, 16), LengthMix(96, 32), LengthMix(32, 64))
CONCURRENCIES = (1, 4, 16, 64)
# Without it a prompt is computed in one step; with it in steps of at most so many tokens.
SCHEDULING = {
    "serial": ["--no-enable-chunked-prefill"],
    "chunked": ["--max-num-batched-tokens", 128],
}
REPEATS = 2
WINDOW_S, LONGEST_S, WARMUP_S = 1.5, 30.0, 0.3
# Percentage points of the time of the device, as of `bench/token_split.py`.
BOUND = 10.0


class RecordingVllm(Vllm):
    """Its engine records each step.

    Args:
        folder: For its model and output.
        options: More options of the server.
    """

    def __init__(self, folder, options):
        super().__init__(folder, SIZE)
        self._options = options
        self._plugin = install_plugin(folder)

    def command(self):
        at_most = ["--max-num-seqs", max(CONCURRENCIES)]
        return [*super().command(), "--no-enable-prefix-caching", *at_most, *self._options]

    def env(self):
        return {**super().env(), **self._plugin}


@pytest.fixture(scope="module", params=SCHEDULING)
def server(request, tmp_path_factory):
    """A scheduling, and its server: the model on one core, all other processes on the other."""
    if (os.cpu_count() or 1) <= max(MODEL_CORE, OTHER_CORE):
        pytest.skip("needs two processor cores")
    folder = tmp_path_factory.mktemp(request.param)
    engine = RecordingVllm(folder, SCHEDULING[request.param])
    before = os.sched_getaffinity(0)
    try:
        with running(engine, folder):
            pin_server(folder)
            os.sched_setaffinity(0, {OTHER_CORE})
            engine.warm_up()
            yield request.param, engine
    finally:
        os.sched_setaffinity(0, before)


def pin_server(folder):
    """Give the process of the model a core of its own; the server's processes run in its folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() != folder:
                continue
            is_model = (process / "comm").read_text().startswith("VLLM::Worker")
            for thread in (process / "task").iterdir():
                os.sched_setaffinity(int(thread.name), {MODEL_CORE if is_model else OTHER_CORE})
        except OSError:
            continue


def measured(engine, mix, concurrency):
    """The result of a window, measured as of a load curve."""
    tokens_in, tokens_out = round(mix.tokens_in), round(mix.tokens_out)
    prompts = engine.folder / f"{tokens_in}.jsonl"
    rng = random.Random(tokens_in)
    texts = ("".join(rng.choices("abcdefgh ", k=tokens_in)) for _ in range(64))
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "real", "kind": "openai", "api": "completions", "url": engine.url,
            "model": engine.model(), "vary_prompt": False,
            "load": {
                "prompts": str(prompts), "tokens_out": tokens_out, "warmup": f"{WARMUP_S}s",
            },
        }
    )  # fmt: skip
    step, notes = LoadStep("closed", 1, concurrency=concurrency), Notes()
    request = json.loads(served_request(probe, energy=False, load=step).to_wire())
    # Shorter than a probe's may be, but each connection has begun and ended a request in it.
    request["load"].update(window_s=WINDOW_S, window_max_s=LONGEST_S, samples=concurrency)
    measure(notes, request, WINDOW_S)
    (result,) = notes.of("result")
    assert result["errors"] == {}
    assert result["tokens_in"] == pytest.approx(tokens_in, abs=2)
    assert result["tokens_out"] == tokens_out
    return result


def window_of(result):
    """A window as of `costprobe calibrate`: one device, used for its whole length."""
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    return CalibrationWindow(
        requests=result["inferences"],
        tokens_in=result["window_tokens_in"],
        tokens_out=result["window_tokens_out"],
        device_s=window_s,
        decode_steps=result["decode_steps"],
    )


def compared(mix, results, alone, timed_steps, decode_times):
    """Our share of the prompt tokens and that of the engine's time, with the seconds per token."""
    own = results[0]
    found = calibrated(
        [window_of(result) for result in results], mix, [window_of(result) for result in alone]
    )
    counts = Counts(
        requests=own["inferences"],
        tokens_in=own["window_tokens_in"],
        tokens_out=own["window_tokens_out"],
    )
    weights = found.times.weights(counts)
    ours_s = weights.token_in * counts.tokens_in, weights.token_out * counts.tokens_out
    truth = split(timed_steps, decode_times, own["steady_start_ns"], own["steady_end_ns"])
    # Per token: the requests of a closed loop begin together, and a short window has more of one kind.
    in_s = truth.prefill_s / truth.prompt_tokens
    out_s = truth.decode_s / truth.decoded
    real_s = in_s * counts.tokens_in, out_s * (counts.tokens_out - counts.requests)
    return {
        "ours_pct": 100 * ours_s[0] / sum(ours_s),
        "engine_pct": 100 * real_s[0] / sum(real_s),
        "ours_ms": [1e3 * weights.token_in, 1e3 * weights.token_out],
        "engine_ms": [1e3 * in_s, 1e3 * real_s[1] / counts.tokens_out],
        "busy_share": (truth.prefill_s + truth.decode_s)
        * 1e9
        / (own["steady_end_ns"] - own["steady_start_ns"]),
    }


def test_calibrated_split_is_that_of_the_engine(server, figures):
    scheduling, engine = server
    cases = list(product(MIXES, CONCURRENCIES))
    runs = [
        [measured(engine, each, concurrency) for each in calibration_mixes(mix) * REPEATS]
        for mix, concurrency in cases
    ]
    runs_alone = {mix: [measured(engine, mix, 1) for _ in range(REPEATS)] for mix in MIXES}
    timed_steps = read_steps(engine.folder)
    decode_times = DecodeTimes(timed_steps)
    rows = []
    for (mix, concurrency), results in zip(cases, runs, strict=True):
        name = f"{mix.tokens_in}/{mix.tokens_out} tokens, {concurrency} at a time, {scheduling}"
        alone = [] if concurrency == 1 else runs_alone[mix]
        row = compared(mix, results, alone, timed_steps, decode_times)
        rows.append({"name": name, **row})
    figures(f"vLLM: calibration, {scheduling}", rows=rows)
    beyond = [row for row in rows if abs(row["ours_pct"] - row["engine_pct"]) > BOUND]
    assert not beyond
