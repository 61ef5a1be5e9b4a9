"""The real worker, on the CPU, through the real runner."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from fakes.kept_worker import KeptWorker

from agent.probing.child import worker_command
from agent.probing.outcome import ProbeFault, ProbeOutcome
from agent.probing.request import ProbeRequest
from agent.probing.runner import ProbeRunner

QUICK = {"dtype": "fp32", "batch": 2, "min_runs": 70, "sample_cap_s": 0.6, "threads": 1}
# Modules of an operator's that hold no factory, the path that is set, and what is said of it.
WRONG = (
    ("", "nowhere:make", "set python"),
    ("", "own:make", "cannot give make"),
    ("def make(): return 3, torch.ones(1)\n", "own:make", "torch.nn.Module"),
    ("def make(): return torch.nn.ReLU(), 'x'\n", "own:make", "dict of tensors"),
    ("def make(): return torch.nn.ReLU(), {}\n", "own:make", "dict of tensors"),
    ("def make(): return torch.nn.ReLU(), torch.ones(0, 4)\n", "own:make", "row"),
    ("make = 3\n", "own:make", "not a function"),
)


def request_for(kind="cnn", *, energy=False, **more):
    return ProbeRequest("p", kind, "cpu", energy=energy, **{**QUICK, **more})


def run(kind="cnn", *, on_edge=lambda: None, **more):
    """By a worker of its own."""
    runner = ProbeRunner(sys.executable, 100.0, threading.Event())
    request = request_for(kind, **more)
    return runner.run(request, "cpu", on_edge=on_edge, on_progress=lambda _: None)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs requests by one worker, which finds the factories of WRONG."""
    folder = tmp_path_factory.mktemp("factories")
    for number, (body, _, _) in enumerate(WRONG):
        (folder / f"own{number}.py").write_text("import torch\n" + body)
    with closing(KeptWorker(sys.executable, PYTHONPATH=str(folder))) as worker:
        yield lambda kind="cnn", **more: worker.run(request_for(kind, **more))


@pytest.fixture
def factory(tmp_path, monkeypatch):
    """Writes a module of an operator's own and puts it where the worker's Python looks."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(body):
        (tmp_path / "own.py").write_text("import torch\n" + body)

    return write


@pytest.mark.parametrize("kind", ["transformer", "cnn"])
def test_a_built_in_model_is_timed(kept, kind):
    outcome = kept(kind)
    assert isinstance(outcome, ProbeOutcome), outcome
    result = outcome.result
    assert result.samples >= 70 or result.stop_reason == "time_cap"
    assert result.inferences == result.samples * 2
    assert result.threads == 1
    assert not result.has_energy_window
    assert result.h2d_ms is None
    # Without a window the region is the sampling itself: the runs' time is within it.
    assert 0 < result.samples * result.latency_ms["mean"] / 1000 <= result.region_s


def test_the_energy_region_lasts_and_lies_within_steady_load():
    edges = []
    outcome = run(energy=True, region_s=5.0, on_edge=lambda: edges.append(1))
    assert isinstance(outcome, ProbeOutcome), outcome
    result = outcome.result
    assert len(edges) == 2
    assert result.region_s >= 5.0
    assert outcome.steady_start_ns < result.region_start_ns
    assert result.region_end_ns < outcome.steady_end_ns
    # Only whole passes, of two items each, are counted.
    assert result.inferences >= 2
    assert result.inferences % 2 == 0
    assert result.throughput_per_s == pytest.approx(result.inferences / result.region_s)


def test_the_same_software_has_the_same_fingerprint_and_another_dtype_another(kept):
    first, second, other = kept(), run(), kept(dtype="bf16")
    assert first.result.fingerprint == second.result.fingerprint
    assert other.result.fingerprint != first.result.fingerprint
    assert first.result.software["torch"]


def test_a_known_batch_of_the_same_software_is_not_searched_again(kept):
    searched = kept(batch="auto", max_batch=4)
    assert len(searched.curve) >= 1
    again = kept(
        batch="auto",
        max_batch=4,
        known_batch=searched.result.batch,
        known_fingerprint=searched.result.fingerprint,
    )
    assert again.curve == ()
    assert again.result.batch == searched.result.batch
    stale = kept(batch="auto", max_batch=4, known_batch=3, known_fingerprint="other")
    assert stale.curve
    assert stale.result.batch != 3


def test_an_operators_factory_is_measured_and_what_it_prints_is_no_report(factory):
    factory(
        "def make():\n"
        '    print(\'{"type": "result"}\')\n'
        "    return torch.nn.Linear(8, 8), torch.ones(1, 8)\n"
    )
    outcome = run("module", module="own:make")
    assert isinstance(outcome, ProbeOutcome), outcome
    assert outcome.result.software["model"] == "own:make"


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_factory_that_is_none_is_refused_with_what_to_do(kept, number):
    _, path, words = WRONG[number]
    fault = kept("module", module=path.replace("own", f"own{number}"))
    assert isinstance(fault, ProbeFault)
    assert fault.kind == "config"
    assert words in fault.title


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("def make(): return 3\n", "config", "must return"),
        ("def make(): raise MemoryError\n", "oom", "memory_cap"),
        ("def make(): raise KeyError('boom')\n", "crash", "boom"),
        ("import os\ndef make(): os._exit(3)\n", "died", "exit code 3"),
    ],
)
def test_a_factory_that_fails_is_a_fault_that_says_what_to_do(factory, body, kind, words):
    factory(body)
    fault = run("module", module="own:make")
    assert isinstance(fault, ProbeFault)
    assert fault.kind == kind
    assert words in fault.title


def test_a_dict_of_inputs_is_passed_by_name_and_the_factory_called_once(factory):
    factory(
        "import sys\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, *, ids, mask): return ids.sum(1) * mask.sum(1)\n"
        "def make():\n"
        "    sys.stderr.write('made\\n')\n"
        "    return Net(), {'ids': torch.ones(1, 8, dtype=torch.int64), 'mask': torch.ones(2, 8)}\n"
    )
    request = ProbeRequest(
        "p", "module", "cpu", **{**QUICK, "batch": "auto"}, energy=False, module="own:make"
    )
    with subprocess.Popen(
        worker_command(sys.executable),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as worker:
        for _ in range(2):
            worker.stdin.write(request.to_wire().encode() + b"\n")
            worker.stdin.flush()
            messages = iter(lambda: json.loads(worker.stdout.readline()), None)
            result = next(m for m in messages if m["type"] in {"result", "error"})
            assert result["type"] == "result", result
        worker.stdin.close()
        assert worker.stderr.read().count(b"made") == 1
    assert result["software"]["inputs"].startswith("ids (1, 8) torch.int64")


def test_a_step_of_the_search_that_runs_out_of_memory_leaves_the_batch_before_it(factory):
    factory(
        "import time\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        if len(x) >= 4: raise RuntimeError('CUDA out of memory. Tried to allocate')\n"
        "        time.sleep(0.002)\n"
        "        return x\n"
        "def make(): return Net(), torch.ones(1, 4)\n"
    )
    outcome = run("module", module="own:make", batch="auto", max_batch=16)
    assert isinstance(outcome, ProbeOutcome), outcome
    # Batch 4 ran out of memory: what lies between is tried.
    assert outcome.result.batch == 3
    assert [point["batch"] for point in outcome.curve] == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("def stuck(): time.sleep(600)\ndef make(): stuck()\n", "deadline", "in stuck"),
        ("def make(): ctypes.string_at(0)\n", "died", "in make"),
    ],
)
def test_a_factory_that_hangs_or_crashes_leaves_its_stack_as_last_words(factory, body, kind, words):
    factory("import ctypes, time\n" + body)
    request = ProbeRequest("p", "module", "cpu", energy=False, module="own:make", **QUICK)
    # Long enough for torch to be imported beside other tests.
    runner = ProbeRunner(sys.executable, 10.0, threading.Event())
    fault = runner.run(request, "cpu", on_edge=lambda: None, on_progress=lambda _: None)
    assert fault.kind == kind
    assert any(line.endswith(words) for line in fault.last_words), fault


@pytest.mark.parametrize("phase", ["latency", "energy"])
def test_a_worker_killed_in_any_phase_is_a_fault_and_the_next_run_starts_clean(
    factory, tmp_path, phase
):
    noted = tmp_path / "pid"
    factory(
        "import os\n"
        "def make():\n"
        f"    open({str(noted)!r}, 'w').write(str(os.getpid()))\n"
        "    return torch.nn.Linear(512, 512), torch.ones(64, 512)\n"
    )
    request = ProbeRequest("p", "module", "cpu", energy=True, module="own:make", **QUICK)
    runner = ProbeRunner(sys.executable, 100.0, threading.Event(), keep_alive=True)

    def kill(progress):
        if progress.phase == phase:
            os.kill(int(noted.read_text()), signal.SIGKILL)

    fault = runner.run(request, "cpu", on_edge=lambda: None, on_progress=kill)
    assert isinstance(fault, ProbeFault)
    assert (fault.kind, "SIGKILL" in fault.title) == ("died", True)
    clean = replace(request, energy=False)
    again = runner.run(clean, "cpu", on_edge=lambda: None, on_progress=lambda _: None)
    assert isinstance(again, ProbeOutcome), again
    runner.close()


def test_a_gpu_that_torch_cannot_use_is_a_device_fault(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    request = ProbeRequest("p", "cnn", "cuda:0", "fp32", 1, energy=False)
    runner = ProbeRunner(sys.executable, 100.0, threading.Event())
    fault = runner.run(request, "gpu0", on_edge=lambda: None, on_progress=lambda _: None)
    assert fault.kind == "device"
    assert "CUDA" in fault.title


def test_the_worker_sees_the_probes_package_and_nothing_else_of_ours():
    program = worker_command(sys.executable)
    isolated = (program[0], "-I", "-S", *program[1:])
    # Without site-packages there is no torch.
    with subprocess.Popen(isolated, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        request = ProbeRequest("p", "cnn", "cpu", energy=False, **QUICK)
        worker.stdin.write(request.to_wire().encode() + b"\n")
        worker.stdin.flush()
        message = json.loads(worker.stdout.readline())
    assert worker.returncode == 0
    assert (message["type"], message["kind"]) == ("error", "config")
    assert "No module named 'torch'" in message["message"]
    assert f"cannot be imported by {sys.executable}" in message["message"]
    assert "set python" in message["message"]


def test_the_worker_ends_when_its_daemon_does():
    with subprocess.Popen(
        worker_command(sys.executable), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        request = ProbeRequest("p", "cnn", "cpu", energy=False, **QUICK)
        worker.stdin.write(request.to_wire().encode() + b"\n")
        worker.stdin.flush()
        assert json.loads(worker.stdout.readline())["type"] == "hello"
        worker.stdin.close()
        assert worker.wait(60) == 0
