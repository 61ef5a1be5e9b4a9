"""One probe worker for many requests, so that packages are imported once."""

from costprobe.adapters.probing.child import ProbeChild, worker_command
from costprobe.adapters.probing.outcome import ProbeFault, read_batch_point, read_outcome

TIMEOUT_S = 100.0


class KeptWorker:
    """A worker that also serves requests after one was rejected.

    The daemon's runner starts a new worker after each fault (test_worker.py), which imports torch
    and the model libraries again: seconds that tests of rejected requests do not need.

    Args:
        python: Its interpreter.
        env: Added to this process's environment.
    """

    def __init__(self, python, **env):
        self._command = worker_command(str(python))
        self._env = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **env}
        self._child = None

    def run(self, request):
        """The outcome of a request; a worker that exits fails the test."""
        if self._child is None:
            self._child = ProbeChild(self._command, self._env)
        self._child.send(request.to_wire())
        curve = []
        while (message := self._child.receive(TIMEOUT_S)) is not None:
            if message["type"] == "result":
                return read_outcome(request.probe, "cpu", message, self._child.pids, curve)
            if message["type"] == "error":
                return ProbeFault(message["kind"], message["message"], ())
            assert message["type"] in {"handshake", "progress", "batch_point"}, message
            if message["type"] == "batch_point":
                curve.append(read_batch_point(message))
        child, self._child = self._child, None
        raise AssertionError(f"the worker {child.exit_description()}: {child.stderr_tail()}")

    def close(self):
        """Stop the worker."""
        if self._child is not None:
            self._child.kill()
