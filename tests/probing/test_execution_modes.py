"""Execution modes of a pass: cold, compiled, as a CUDA graph; and the priority of the worker."""

import os
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest
import torch
from costprobe.adapters.probing.outcome import ProbeFault, ProbeOutcome
from costprobe.adapters.probing.runner import ProbeRunner
from costprobe_probes.device import CpuDevice, last_level_cache_bytes
from costprobe_probes.errors import is_too_large, kind_of
from costprobe_probes.hostmemory import HostMemory
from costprobe_probes.replay import capture
from costprobe_probes.stats import outliers
from fakes.kept_worker import KeptWorker
from fakes.probe_requests import probe_request

QUICK = {"dtype": "fp32", "batch": 2, "min_samples": 30, "sample_cap_s": 0.5, "threads": 1}


def request_for(kind="cnn", **more):
    return probe_request(kind, **{**QUICK, **more})


def run(kind="cnn", **more):
    """Run one request in a new worker process."""
    runner = ProbeRunner(sys.executable, 100.0, threading.Event())
    request = request_for(kind, **more)
    return runner.run(request, "cpu", on_edge=lambda: None, on_progress=lambda _: None)


# A minimal model to compile: a larger one takes longer and tests no more.
LAYER = "def make(): return torch.nn.GELU(), torch.ones(1, 8)\n"
# Raises an error that names the process's priorities.
PRIORITY = (
    "import ctypes, os\n"
    "get = {'x86_64': 252, 'aarch64': 31, 'ppc64le': 274}.get(os.uname().machine)\n"
    "nice = os.nice(0)\n"
    "disk = ctypes.CDLL(None).syscall(get, 1, 0) if get else (2 << 13) | 7\n"
    "def make(): raise RuntimeError(f'nice {nice} disk {disk}')\n"
)
SLOW_TENTH = (
    "import time\n"
    "class Net(torch.nn.Module):\n"
    "    runs = 0\n"
    "    def forward(self, x):\n"
    "        self.runs += 1\n"
    "        time.sleep(0.05 if self.runs % 10 == 0 else 0.001)\n"
    "        return x\n"
    "def make(): return Net(), torch.ones(1, 4)\n"
)
FACTORIES = {"layer": LAYER, "priority": PRIORITY, "slow_tenth": SLOW_TENTH}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs requests in one worker that imports torch once and can import the modules of FACTORIES."""
    folder = tmp_path_factory.mktemp("factories")
    for name, body in FACTORIES.items():
        (folder / f"{name}.py").write_text("import torch\n" + body)
    with closing(KeptWorker(sys.executable, PYTHONPATH=str(folder))) as worker:
        yield lambda kind="cnn", **more: worker.run(request_for(kind, **more))


def test_cold_probe_measures_latency_only_without_flush_time(kept):
    outcome = kept(cold=True, energy=True)
    assert isinstance(outcome, ProbeOutcome), outcome
    result = outcome.result
    assert result.tags == {"cold": "true"}
    assert result.software["cold"] == "true"
    # The power of flushing cannot be separated from that of the passes.
    assert not result.has_energy_window
    passes_s = result.samples * result.latency_ms["mean"] / 1000
    assert result.inference_s == pytest.approx(passes_s)
    assert result.inference_s < result.window_s
    assert result.throughput_per_s == pytest.approx(2000 / result.latency_ms["mean"])


def test_flush_before_each_pass_is_not_timed():
    device = CpuDevice(HostMemory())
    calls = []
    latencies_ms = device.time_block(lambda: calls.append("run"), 5, lambda: calls.append("flush"))
    assert calls == ["flush", "run"] * 5
    assert len(latencies_ms) == 5


def test_flush_writes_more_than_the_largest_cache(tmp_path):
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


def test_compiled_model_is_tagged_and_has_another_fingerprint(kept):
    plain, compiled = (kept("module", module="layer:make", compile=way) for way in (False, True))
    assert isinstance(compiled, ProbeOutcome), compiled
    assert compiled.result.tags == {"compile": "true"}
    assert compiled.result.fingerprint != plain.result.fingerprint


def test_model_that_cannot_be_compiled_is_rejected_with_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "own.py").write_text("import torch\n" + LAYER)
    fault = run("module", module="own:make", compile=True)
    assert isinstance(fault, ProbeFault), fault
    assert fault.kind == "config"
    assert "torch.compile failed" in fault.title
    assert "remove compile" in fault.title
    assert "C++ compiler" in fault.title


def test_cuda_graph_needs_a_gpu(kept):
    fault = kept(cuda_graph=True)
    assert isinstance(fault, ProbeFault), fault
    assert (fault.kind, "needs a GPU" in fault.title) == ("config", True)


class FailingCapture:
    """In place of torch.cuda: a pass fails while it is captured, and so does the capture's end."""

    torch_device = torch.device("cuda")
    CUDAGraph = object

    def __init__(self, first):
        self._first = first
        self._is_capturing = False

    def synchronize(self):
        """There is no work."""

    @contextmanager
    def graph(self, _):
        self._is_capturing = True
        try:
            yield
        finally:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )

    def run(self):
        if self._is_capturing and self._first:
            raise RuntimeError(self._first)


def test_failed_capture_is_told_from_exhausted_memory():
    # torch replaces the first error by that of the capture's end; the allocator may hide it.
    for first, kind in (
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "oom"),
        ("GET was unable to find an engine to execute this computation", "oom"),
        ("CUDA error: operation not permitted when stream is capturing", "config"),
        ("", "config"),
    ):
        failing = FailingCapture(first)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - its kind is what is tested
            capture(failing, failing.run, failing)
        assert kind_of(raised.value) == kind, first
        # A smaller batch was captured: this one is too large.
        assert is_too_large(raised.value), first


def test_worker_has_the_lowest_priority(kept):
    fault = kept("module", module="priority:make")
    nice = min(19, os.nice(0) + 10)
    assert f"nice {nice} disk {(2 << 13) | 7}" in fault.title


def test_neighbour_on_every_processor_marks_a_run_as_contended(kept):
    loop = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(loop) for _ in os.sched_getaffinity(0)]
    try:
        result = kept(sample_cap_s=1.0).result
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert result.contended is True
    assert result.fields["cpu_others_pct"] > 10


def test_outliers_are_counted_and_stay_in_the_statistics(kept):
    steady = [10.0 + i % 3 / 10 for i in range(100)]
    assert outliers(steady) == 0
    assert outliers([*steady, 30.0, 0.1]) == 2
    assert outliers([10.0] * 50) == 0
    # A coarse timer: half of the values are equal, the others one tick away.
    assert outliers([10.0] * 60 + [10.05] * 40) == 0
    result = kept("module", module="slow_tenth:make", sample_cap_s=2.0).result
    assert result.outliers >= result.samples // 20
    assert result.latency_ms["mean"] > 2 * result.latency_ms["p50"]


def test_precision_of_the_latency_is_reported(kept):
    result = kept(sample_cap_s=2.0, min_samples=200).result
    assert result.latency_rel_err is None or 0 <= result.latency_rel_err < 1
    short = kept(sample_cap_s=0.05).result
    assert short.stop_reason == "time_cap"


def test_flags_that_change_speed_are_part_of_the_fingerprint():
    from costprobe_probes.fingerprint import software

    before = software(torch.device("cpu"))
    try:
        for precision in ("high", "medium"):
            torch.set_float32_matmul_precision(precision)
            assert software(torch.device("cpu")) != before, precision
    finally:
        torch.set_float32_matmul_precision("highest")
