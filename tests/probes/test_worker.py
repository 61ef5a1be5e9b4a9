"""The probe worker on the CPU, started by the daemon's runner."""

import json
import signal
import subprocess
import sys
import threading

import pytest
from costprobe.adapters.probe_child.results import ProbeFault, ProbeResult
from costprobe.adapters.probe_child.runner import ProbeRunner, worker_command
from costprobe_probes.stats import DEFINITION
from fakes.kept_worker import quick_command, worker_with
from fakes.probe_requests import probe_request

QUICK = {"dtype": "fp32", "batch": 2, "min_samples": 70, "sample_cap_s": 0.4, "threads": 1}
# Operator modules whose factories fail, the configured path, the kind of the fault, and its text.
WRONG = (
    ("", "nowhere:make", "config", "set path"),
    ("", "own:make", "config", "has no make"),
    ("def make(): return 3, torch.ones(1)\n", "own:make", "config", "torch.nn.Module"),
    ("def make(): return torch.nn.ReLU(), torch.ones(0, 4)\n", "own:make", "config", "row"),
    ("make = 3\n", "own:make", "config", "not a function"),
    ("def make(): return 3\n", "own:make", "config", "must return"),
    ("def make(): raise MemoryError\n", "own:make", "oom", "memory_cap"),
    ("def make(): raise KeyError('boom')\n", "own:make", "crash", "boom"),
)
# Raises where its factory runs a second time; its output is no message of the worker.
COUNTED = (
    "class Net(torch.nn.Module):\n"
    "    def forward(self, *, ids, mask): return ids.sum(1) * mask.sum(1)\n"
    "made = []\n"
    "def make():\n"
    '    print(\'{"type": "result"}\')\n'
    "    made.append(1)\n"
    "    assert len(made) == 1\n"
    "    return Net(), {'ids': torch.ones(1, 8, dtype=torch.int64), 'mask': torch.ones(2, 8)}\n"
)
# As the force of a potential, which is a gradient of its energy.
FORCE = (
    "class Net(torch.nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.energy = torch.nn.Linear(3, 1)\n"
    "    def forward(self, x):\n"
    "        x = x.detach().requires_grad_()\n"
    "        return torch.autograd.grad(self.energy(x).sum(), x)[0]\n"
    "def make(): return Net(), torch.ones(1, 3)\n"
)
FULL_FROM_FOUR = (
    "class Net(torch.nn.Module):\n"
    "    def forward(self, x):\n"
    "        if len(x) >= 4: raise RuntimeError('GET was unable to find an engine to execute')\n"
    "        return x\n"
    "def make(): return Net(), torch.ones(1, 4)\n"
)


def request_for(kind="cnn", *, energy=False, **more):
    return probe_request(kind, energy=energy, **{**QUICK, **more})


def run(runner, request, on_edge=lambda: None, on_progress=lambda _: None):
    return runner.run(request, "cpu", on_edge=on_edge, on_progress=on_progress)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs requests in one worker that imports torch once and can import all factories."""
    bodies = {f"own{number}": body for number, (body, *_) in enumerate(WRONG)}
    bodies |= {"full_from_four": FULL_FROM_FOUR, "counted": COUNTED, "force": FORCE}
    with worker_with(bodies, tmp_path_factory.mktemp("factories"), quick=QUICK) as run_kept:
        yield run_kept


@pytest.fixture(scope="module")
def real():
    """Runs requests in one worker that repeats its passes."""
    with worker_with(is_quick=False, quick=QUICK) as run_real:
        yield run_real


@pytest.fixture
def factory(tmp_path, monkeypatch):
    """Writes an operator module into a folder on the worker's import path."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(body):
        (tmp_path / "own.py").write_text("import torch\n" + body)

    return write


def test_cold_probe_measures_latency_only_without_flush_time(real):
    result = real(cold=True, energy=True)
    assert isinstance(result, ProbeResult), result
    assert result.tags == {"cold": "true"}
    assert result.software["cold"] == "true"
    # The power of flushing cannot be separated from that of the passes.
    assert not result.has_energy_window
    passes_s = result.samples * result.latency_ms["mean"] / 1000
    assert result.inference_s == pytest.approx(passes_s)
    assert result.inference_s < result.window_s
    assert result.throughput_per_s == pytest.approx(2000 / result.latency_ms["mean"])


def test_energy_window_has_its_duration_within_steady_load(kept):
    edges = []
    runner = ProbeRunner(quick_command(sys.executable), 100.0, threading.Event())
    request = request_for(energy=True, window_s=0.3)
    result = run(runner, request, on_edge=lambda: edges.append(1))
    assert isinstance(result, ProbeResult), result
    # The same software in another process has the same fingerprint.
    assert result.fingerprint == kept().fingerprint
    assert len(edges) == 2
    assert result.window_s >= 0.3
    assert result.steady_start_ns < result.window_start_ns
    assert result.window_end_ns < result.steady_end_ns
    # Only whole passes, of two items each, are counted.
    assert result.inferences >= 2
    assert result.inferences % 2 == 0
    assert (result.threads, result.software["timing"]) == (1, DEFINITION)
    # The throughput is that of the loop before it, as of a run without a window.
    assert result.throughput_per_s == pytest.approx(result.inferences / result.inference_s)


def test_search_continues_below_a_full_memory_and_its_batch_is_reused(kept):
    small = {"kind": "module", "module": "full_from_four:make", "batch": "auto"}
    searched = kept(**small)
    # Batch 4 ran out of memory: the batches between 2 and 4 are tried.
    assert [point["batch"] for point in searched.curve] == [1, 2, 3]
    again = kept(**small, known_batch=3, known_fingerprint=searched.fingerprint)
    assert (again.batch, again.curve) == (3, ())
    stale = kept(**small, known_batch=1, known_fingerprint="other")
    assert (stale.batch, len(stale.curve)) == (3, 3)


def test_failing_factories_are_faults_with_their_fix(kept):
    for number, (body, path, kind, text) in enumerate(WRONG):
        fault = kept("module", module=path.replace("own", f"own{number}"))
        assert isinstance(fault, ProbeFault), body
        assert (fault.kind, text in fault.title) == (kind, True), fault


def test_dict_inputs_are_keyword_arguments_and_the_factory_runs_once(kept):
    for _ in range(2):
        outcome = kept("module", module="counted:make", batch=3)
        assert isinstance(outcome, ProbeResult), outcome
        assert outcome.software["inputs"].startswith("ids (1, 8) torch.int64")


def test_model_that_computes_gradients_needs_autograd(kept):
    fault = kept("module", module="force:make")
    assert 'set autograd = "enable_grad" in its [[probe]]' in fault.title
    result = kept("module", module="force:make", autograd="enable_grad")
    assert isinstance(result, ProbeResult), result
    assert result.software["autograd"] == "enable_grad"
    assert (result.flop_per_pass, result.bytes_per_pass) == (None, None)  # cannot be counted
    plain = kept("cnn")
    assert (plain.flop_precision, plain.flop_per_pass > 0) == ("fp32", True)


def test_hung_worker_writes_its_stack_on_a_signal_and_ends_when_its_stdin_closes(
    factory, tmp_path, wait_until
):
    entered = tmp_path / "entered"
    factory(
        "import pathlib, time\n"
        f"def stuck(): pathlib.Path({str(entered)!r}).touch(); time.sleep(600)\n"
        "def make(): stuck()\n"
    )
    pipe = subprocess.PIPE
    command = worker_command(sys.executable)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        worker.stdin.write(request_for("module", module="own:make").to_wire().encode() + b"\n")
        worker.stdin.flush()
        wait_until(entered.exists)
        # As the runner does at a deadline (test_runner.py), which includes the import of torch.
        worker.send_signal(signal.SIGUSR1)
        assert any(line.endswith(b"in stuck\n") for line in worker.stderr)
        worker.stdin.close()
        assert worker.wait(60) == 0


def test_stack_of_a_crashed_factory_is_in_the_stderr_tail(factory):
    factory("import ctypes\ndef make(): ctypes.string_at(0)\n")
    runner = ProbeRunner(worker_command(sys.executable), 100.0, threading.Event())
    fault = run(runner, request_for("module", module="own:make"))
    assert (fault.kind, "SIGSEGV" in fault.title) == ("died", True)
    assert any(line.endswith("in make") for line in fault.stderr_tail), fault


def test_isolated_worker_reports_missing_torch():
    program = worker_command(sys.executable)
    isolated = (program[0], "-I", "-S", *program[1:])
    # Without site-packages there is no torch.
    with subprocess.Popen(isolated, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        request = request_for()
        worker.stdin.write(request.to_wire().encode() + b"\n")
        worker.stdin.flush()
        message = json.loads(worker.stdout.readline())
    assert worker.returncode == 0
    assert (message["type"], message["kind"]) == ("error", "config")
    assert "No module named 'torch'" in message["message"]
    assert f"cannot be imported by {sys.executable}" in message["message"]
    assert "set python" in message["message"]
