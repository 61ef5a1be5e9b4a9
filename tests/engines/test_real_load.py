"""A point of a load curve beside `vllm bench serve`, on a real vLLM on the CPU. `make soak` runs it."""

import json
import os
import statistics
import subprocess
from pathlib import Path

import pytest
from costprobe.adapters.probing.request import served_request
from costprobe.adapters.probing.served_settings import OpenAiProbeConfig
from costprobe.domain.costing.load.point import LoadStep
from costprobe_probes.served.session import ServedSession
from engines.environment import running
from engines.run_vllm import Vllm
from fakes.inference_server import Notes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
TOKENS_IN, TOKENS_OUT, CONCURRENCY, REQUESTS = 64, 64, 4, 60
# Hidden size and layers: a step takes 15 ms, much longer than the work of either client.
SIZE = (768, 6)
# Both measure the same server, but one after the other: the machine's load may change between them.
APART = 1.3
# Our figure, and its name in the result of `vllm bench serve`.
FIGURES = {
    "TTFT ms": "median_ttft_ms",
    "TPOT ms": "median_tpot_ms",
    "ITL ms": "median_itl_ms",
    "tokens/s": "output_throughput",
}


def ours(engine):
    """The figures of a point."""
    length = {"tokens_in": TOKENS_IN, "tokens_out": TOKENS_OUT}
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "real", "kind": "openai", "api": "completions", "url": engine.url,
            "model": engine.model(), "load": {**length, "window": "20s", "warmup": "3s"},
        }
    )  # fmt: skip
    step, notes = LoadStep("closed", 1, concurrency=CONCURRENCY), Notes()
    ServedSession(notes).run(json.loads(served_request(probe, energy=False, load=step).to_wire()))
    (result,) = notes.of("served_result")
    assert result["errors"] == {}
    assert result["tokens_in"] == pytest.approx(TOKENS_IN, rel=0.1)
    assert result["tokens_out"] == TOKENS_OUT
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    return {
        "TTFT ms": result["ttft_ms"]["p50"],
        "TPOT ms": result["tpot_ms"]["p50"],
        "ITL ms": result["load"]["itl_ms"]["p50"],
        "tokens/s": result["window_tokens_out"] / window_s,
    }


def theirs(engine, folder):
    """The same figures of `vllm bench serve`."""
    result = folder / "bench.json"
    command = [
        engine.venv / "bin" / "vllm", "bench", "serve", "--backend", "openai",
        "--base-url", engine.url, "--endpoint", "/v1/completions", "--model", engine.model(),
        "--tokenizer", engine.folder / "tiny", "--dataset-name", "random",
        "--random-input-len", TOKENS_IN, "--random-output-len", TOKENS_OUT, "--ignore-eos",
        "--num-prompts", REQUESTS, "--max-concurrency", CONCURRENCY, "--disable-tqdm",
        # As ours: not the first requests of a client, and no sampling.
        "--num-warmups", 2 * CONCURRENCY, "--temperature", 0,
        "--save-result", "--result-dir", folder, "--result-filename", result.name,
    ]  # fmt: skip
    env = {**os.environ, **engine.env(), "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    subprocess.run([str(part) for part in command], check=True, env=env, timeout=600)
    found = json.loads(result.read_text())
    return {figure: found[name] for figure, name in FIGURES.items()}


def test_figures_agree_with_vllm_bench_serve(tmp_path):
    engine = Vllm(tmp_path, SIZE)
    with running(engine, tmp_path):
        engine.warm_up()
        # The order cancels a linear drift of the machine's load.
        runs = [ours(engine), theirs(engine, tmp_path), theirs(engine, tmp_path), ours(engine)]
    ratios = {
        figure: statistics.fmean((runs[0][figure], runs[3][figure]))
        / statistics.fmean((runs[1][figure], runs[2][figure]))
        for figure in FIGURES
    }
    path = os.environ.get("COSTPROBE_SOAK_FIGURES")
    if path:
        with Path(path).open("a") as file:
            file.write(json.dumps({"case": "vLLM: load curve", "ratios": ratios}) + "\n")
    assert all(1 / APART < ratio < APART for ratio in ratios.values()), (ratios, runs)
