"""Execution modes of a pass: compiled, as a CUDA graph; and the priority of the worker."""

import os
import subprocess
import sys
import threading

import pytest
from costprobe.adapters.probe_child.results import ProbeResult
from costprobe.adapters.probe_child.runner import ProbeRunner, worker_command
from costprobe_probes.stats import outliers
from fakes.kept_worker import QUICK, worker_with
from fakes.probe_requests import probe_request

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
FACTORIES = {"layer": LAYER, "priority": PRIORITY}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs requests in one worker that imports torch once and can import the modules of FACTORIES."""
    # Whether torch.compile works is the subject of one test below, and of `make soak`.
    env = {"TORCHDYNAMO_DISABLE": "1"}
    with worker_with(FACTORIES, tmp_path_factory.mktemp("factories"), **env) as run_kept:
        yield run_kept


def test_compiled_model_is_tagged_and_has_another_fingerprint(kept):
    check_compiled(kept)


@pytest.mark.soak
def test_model_is_compiled_with_the_compiler_of_the_host(tmp_path):
    with worker_with(FACTORIES, tmp_path, is_quick=False) as run_real:
        check_compiled(run_real)


def check_compiled(run_kept):
    plain, compiled = (
        run_kept("module", module="layer:make", compile=way) for way in (False, True)
    )
    assert isinstance(compiled, ProbeResult), compiled
    assert compiled.tags == {"compile": "true"}
    assert compiled.fingerprint != plain.fingerprint


def test_worker_has_the_lowest_priority(kept):
    fault = kept("module", module="priority:make")
    nice = min(19, os.nice(0) + 10)
    assert f"nice {nice} disk {(2 << 13) | 7}" in fault.title


def test_neighbour_on_every_processor_marks_a_run_as_contended():
    # Pinned, because the scheduler would leave a processor to a probe that is pinned to it.
    loop = "import os\nos.sched_setaffinity(0, [{}])\nwhile True: pass"
    neighbours = []

    def start_neighbours(_):
        """At the first progress, when the worker has imported torch."""
        if not neighbours:
            commands = ([sys.executable, "-c", loop.format(n)] for n in os.sched_getaffinity(0))
            neighbours.extend(map(subprocess.Popen, commands))

    try:
        # More passes than fit: the run lasts as long as it may.
        runner = ProbeRunner(worker_command(sys.executable), 100.0, threading.Event())
        request = probe_request(**{**QUICK, "min_samples": 100_000, "sample_cap_s": 0.5})
        result = runner.run(request, "cpu", on_edge=lambda: None, on_progress=start_neighbours)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert result.contention.contended is True
    assert result.contention.others_pct > 10


def test_outliers_are_counted_and_stay_in_the_statistics(kept):
    steady = [10.0 + i % 3 / 10 for i in range(100)]
    assert outliers(steady) == 0
    assert outliers([*steady, 30.0, 0.1]) == 2
    assert outliers([10.0] * 50) == 0
    # A coarse timer: half of the values are equal, the others one tick away.
    assert outliers([10.0] * 60 + [10.05] * 40) == 0
    # Every tenth pass is a slow one.
    result = kept()
    assert result.outliers == result.samples // 10
    assert result.latency_ms["mean"] > 2 * result.latency_ms["p50"]
