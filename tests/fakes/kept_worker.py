"""One probe worker for many requests, so that packages are imported once."""

import sys
from contextlib import closing, contextmanager
from pathlib import Path

from costprobe.adapters.probe_child.results import (
    ProbeFault,
    read_batch_point,
    read_result,
    read_start,
)
from costprobe.adapters.probe_child.runner import ProbeChild, worker_command
from fakes.probe_requests import probe_request

TIMEOUT_S = 100.0
# A short run.
QUICK = {"dtype": "fp32", "batch": 2, "min_samples": 30, "sample_cap_s": 0.1, "threads": 1}
QUICK_WORKER = Path(__file__).with_name("quick_worker.py")


def quick_command(python):
    """The command line of a worker that repeats no timed pass."""
    return (str(python), str(QUICK_WORKER))


class KeptWorker:
    """A worker that also serves requests after one was rejected.

    The daemon's runner starts a new worker after each fault (test_worker.py), which imports torch
    and the model libraries again: seconds that tests of rejected requests do not need.

    Args:
        python: Its interpreter.
        is_quick: Whether it is that of quick_worker.py, or the real one.
        env: Added to this process's environment.
    """

    def __init__(self, python, *, is_quick=True, **env):
        command = quick_command if is_quick else worker_command
        self._command = command(str(python))
        self._env = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "", **env}
        self._child = None

    def run(self, request):
        """The outcome of a request; a worker that exits fails the test."""
        if self._child is None:
            self._child = ProbeChild(self._command, self._env)
        self._child.send(request.to_wire())
        curve = []
        while (message := self._child.messages.get(timeout=TIMEOUT_S)) is not None:
            if message["type"] == "result":
                return read_result(
                    message,
                    probe=request.probe,
                    device="cpu",
                    pids=self._child.pids,
                    curve=curve,
                )
            if message["type"] == "cold_start":
                return read_start(message, 0)
            if message["type"] == "error":
                return ProbeFault(message["kind"], message["message"], ())
            assert message["type"] in {"handshake", "progress", "batch_point"}, message
            if message["type"] == "batch_point":
                curve.append(read_batch_point(message))
        child, self._child = self._child, None
        raise AssertionError(f"the worker {child.exit_description()}: {tuple(child.stderr_tail)}")

    def close(self):
        """Stop the worker."""
        if self._child is not None:
            self._child.kill()


@contextmanager
def worker_with(factories=None, folder=None, python=sys.executable, quick=QUICK, **more):
    """Yield a function that runs a kind with more keys in one worker.

    Args:
        factories: Texts of modules that it can import, by their names; they have torch.
        folder: For them.
        python: Its interpreter.
        quick: Keys of each request.
        more: Of KeptWorker.
    """
    for name, body in (factories or {}).items():
        (folder / f"{name}.py").write_text("import torch\n" + body)
        more["PYTHONPATH"] = str(folder)
    with closing(KeptWorker(python, **more)) as worker:
        yield lambda kind="cnn", **keys: worker.run(probe_request(kind, **{**quick, **keys}))
