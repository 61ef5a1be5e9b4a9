"""The benchmarks that replace parts of the product work with its current interfaces."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    """Imports a benchmark module; restores sys.path at the end."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module


def test_step_of_the_gpu_check_that_misses_its_goal_fails_or_hangs_is_not_ok(bench, tmp_path):
    check = bench("gpu_check")
    child = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    programs = {
        "good": ("print('log'); print('{\"ms\": 1}')", 60, {"ok": True, "ms": 1}),
        "missed": ('print(\'{"missed": ["slow"]}\')', 60, {"ok": False, "missed": ["slow"]}),
        "failed": ("raise SystemExit('no GPU')", 60, {"ok": False, "error": "exit code 1: no GPU"}),
        "hung": (child, 0.5, {"ok": False, "error": "ended at its limit of 0.5 s"}),
    }
    for name, (program, limit_s, expected) in programs.items():
        found = check.run_step((sys.executable, "-c", program), limit_s, tmp_path / name)
        del found["duration_s"]
        assert found == expected
    assert all(callable(step.function) for step in check.STEPS.values())


def test_modules_of_the_gpu_check_exist(bench):
    """Steps import them where they run, on a GPU."""
    for name in ("gpu_check", "gpu_timing", "gpu_probes"):
        for node in ast.walk(ast.parse(Path(bench(name).__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("costprobe"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, one.name) for one in node.names), node.module
    bench("gpu_models")
    assert bench("gpu_server").Model("cpu").next_token(1) >= 0


def test_page_on_input_and_output_tokens_has_the_table_of_the_recorded_results(bench):
    """The table of all loads takes a minute: it was recorded."""
    module = bench("token_split")
    rows = [module.row(case) for case in module.cases(is_short=True)]
    page = (ROOT / "docs" / "token_split.md").read_text()
    results = (ROOT / "bench" / "results" / "2026-11-27-token-split.md").read_text()
    everything = next(
        part for part in results.split("## ") if part.startswith("Error on 280 simulated")
    )
    assert "\n".join(module.summary(module.real_rows())) in results
    assert everything.partition("\n\n")[2].strip() in page
    # The recorded loads are those of today's code.
    assert [line for line in module.by_case(rows) if line not in results] == []
    assert len(module.cases(is_short=False)) == 280
    assert module.missed(rows) == []


def test_simulated_server_counts_as_vllm_does(bench):
    """Decode is divided by the tokens after the first, each request alone; passes are shared."""
    module = bench("token_split")
    case = module.Case("8B", "H100", module.RequestLoad(2000, 11, 4), None)
    alone = case.served(case.load._replace(concurrency=1), 1)
    assert alone.prefill_request_s == pytest.approx(alone.prefill_gpu_s)
    assert alone.time_per_output_token_s == pytest.approx(alone.decode_gpu_s / 10)
    shapes = (module.Shape(3000, 2), module.Shape(1000, 20))
    mixed = case.served(case.load._replace(shapes=shapes), 4)
    assert (mixed.requests, mixed.tokens_in, mixed.tokens_out) == (4, 8000, 44)
    assert mixed.busy_s == pytest.approx(mixed.prefill_gpu_s + mixed.decode_gpu_s)
    assert mixed.decode_request_s > mixed.decode_gpu_s
