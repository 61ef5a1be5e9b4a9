"""Ways to run a pass: cold, compiled, as a CUDA graph; and that the worker gives way."""

import sys
import threading
from contextlib import closing

import pytest
import torch
from fakes.kept_worker import KeptWorker

from agent.probing.outcome import ProbeFault, ProbeOutcome
from agent.probing.request import ProbeRequest
from agent.probing.runner import ProbeRunner
from probes.device import CpuDevice, last_level_cache_bytes
from probes.hostmemory import HostMemory
from probes.stats import outliers

QUICK = {"dtype": "fp32", "batch": 2, "min_runs": 30, "sample_cap_s": 0.5, "threads": 1}


def request_for(kind="cnn", **more):
    return ProbeRequest("p", kind, "cpu", **{"energy": False, **QUICK, **more})


def run(kind="cnn", **more):
    """By a worker of its own."""
    runner = ProbeRunner(sys.executable, 100.0, threading.Event())
    request = request_for(kind, **more)
    return runner.run(request, "cpu", on_edge=lambda: None, on_progress=lambda _: None)


@pytest.fixture(scope="module")
def kept():
    """Runs requests by one worker."""
    with closing(KeptWorker(sys.executable)) as worker:
        yield lambda kind="cnn", **more: worker.run(request_for(kind, **more))


@pytest.fixture
def factory(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(body):
        (tmp_path / "own.py").write_text("import torch\n" + body)

    return write


def test_a_cold_probe_tells_latency_alone_without_the_time_of_flushing(kept):
    outcome = kept(cold=True, energy=True)
    assert isinstance(outcome, ProbeOutcome), outcome
    result = outcome.result
    assert result.tags == {"cold": "true"}
    assert result.software["cold"] == "true"
    # What flushing draws cannot be told from what a pass draws.
    assert not result.has_energy_window
    passes_s = result.samples * result.latency_ms["mean"] / 1000
    assert result.inference_s == pytest.approx(passes_s)
    assert result.inference_s < result.region_s
    assert result.throughput_per_s == pytest.approx(2000 / result.latency_ms["mean"])
    assert result.wall_ms is None
    assert result.launch_overhead_pct is None


def test_what_runs_before_each_pass_is_outside_its_time():
    device = CpuDevice(HostMemory())
    calls = []
    latencies_ms, wall_ms = device.time_block(
        lambda: calls.append("run"), 5, lambda: calls.append("flush")
    )
    assert calls == ["flush", "run"] * 5
    assert len(latencies_ms) == 5
    assert wall_ms >= sum(latencies_ms)


def test_a_flush_writes_more_than_the_largest_cache_holds(tmp_path):
    sizes = {"index0": "48K", "index1": "32K", "index2": "2048K", "index3": "36M", "index4": "odd"}
    for name, size in sizes.items():
        folder = tmp_path / "sys/devices/system/cpu/cpu0/cache" / name
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(str(tmp_path)) == 36 << 20
    assert last_level_cache_bytes(str(tmp_path / "nowhere")) == 0
    flush = CpuDevice(HostMemory()).cache_flush()
    written = flush()
    assert written.numel() * 4 >= 2 * last_level_cache_bytes()
    assert not written.any()


# Something to compile: a larger model takes the compiler longer and shows no more.
LAYER = "def make(): return torch.nn.GELU(), torch.ones(1, 8)\n"


def test_a_compiled_model_is_tagged_and_another_fingerprint(factory):
    factory(LAYER)
    plain, compiled = (run("module", module="own:make", compile=way) for way in (False, True))
    assert isinstance(compiled, ProbeOutcome), compiled
    assert compiled.result.tags == {"compile": "true"}
    assert compiled.result.fingerprint != plain.result.fingerprint


def test_a_model_that_cannot_be_compiled_is_refused_with_what_to_do(factory, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    factory(LAYER)
    fault = run("module", module="own:make", compile=True)
    assert isinstance(fault, ProbeFault), fault
    assert fault.kind == "config"
    assert "torch.compile failed" in fault.title
    assert "remove compile" in fault.title
    assert "C++ compiler" in fault.title


def test_a_cuda_graph_needs_a_gpu(kept):
    fault = kept(cuda_graph=True)
    assert isinstance(fault, ProbeFault), fault
    assert (fault.kind, "needs a GPU" in fault.title) == ("config", True)


def test_the_worker_gives_way_to_everything_else(factory):
    factory(
        "import ctypes, os\n"
        "get = {'x86_64': 252, 'aarch64': 31, 'ppc64le': 274}.get(os.uname().machine)\n"
        "nice = os.nice(0)\n"
        "disk = ctypes.CDLL(None).syscall(get, 1, 0) if get else (2 << 13) | 7\n"
        "def make(): raise RuntimeError(f'nice {nice} disk {disk}')\n"
    )
    fault = run("module", module="own:make")
    assert f"nice 10 disk {(2 << 13) | 7}" in fault.title


def test_outliers_are_counted_and_stay_in_the_statistics(factory):
    steady = [10.0 + i % 3 / 10 for i in range(100)]
    assert outliers(steady) == 0
    assert outliers([*steady, 30.0, 0.1]) == 2
    assert outliers([10.0] * 50) == 0
    # A timer that ticks: half of the values are the same, and the others a tick away.
    assert outliers([10.0] * 60 + [10.05] * 40) == 0
    factory(
        "import time\n"
        "class Net(torch.nn.Module):\n"
        "    runs = 0\n"
        "    def forward(self, x):\n"
        "        self.runs += 1\n"
        "        time.sleep(0.05 if self.runs % 10 == 0 else 0.001)\n"
        "        return x\n"
        "def make(): return Net(), torch.ones(1, 4)\n"
    )
    result = run("module", module="own:make", sample_cap_s=2.0).result
    assert result.outliers >= result.samples // 20
    assert result.latency_ms["mean"] > 2 * result.latency_ms["p50"]


def test_what_is_known_of_the_precision_is_told(kept):
    result = kept(sample_cap_s=2.0, min_runs=200).result
    assert result.latency_rel_err is None or 0 <= result.latency_rel_err < 1
    short = kept(sample_cap_s=0.05).result
    assert short.stop_reason == "time_cap"


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_flags_that_change_speed_are_part_of_the_fingerprint(precision):
    from probes.fingerprint import software

    before = software(torch.device("cpu"))
    torch.set_float32_matmul_precision(precision)
    try:
        assert software(torch.device("cpu")) != before
    finally:
        torch.set_float32_matmul_precision("highest")
