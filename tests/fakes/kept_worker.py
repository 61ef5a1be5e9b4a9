"""One real probe worker for many requests, so that what it imports it imports once."""

from agent.probing.child import ProbeChild, worker_command
from agent.probing.outcome import ProbeFault, read_batch_point, read_outcome

TIMEOUT_S = 100.0


class KeptWorker:
    """A worker that is asked again after a refusal too.

    The daemon's runner takes a new one after each fault (test_worker.py), and so imports torch and
    a serving stack's libraries anew: seconds, of which a test of what is refused learns nothing.

    Args:
        python: Its interpreter.
        env: Added to this process's environment.
    """

    def __init__(self, python, **env):
        self._command = worker_command(str(python))
        self._env = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **env}
        self._child = None

    def run(self, request):
        """What a request came to; a worker that ends by it fails the test."""
        if self._child is None:
            self._child = ProbeChild(self._command, self._env)
        self._child.send(request.to_wire())
        curve = []
        while (message := self._child.receive(TIMEOUT_S)) is not None:
            if message["type"] == "result":
                return read_outcome(request.probe, "cpu", message, self._child.pids, curve)
            if message["type"] == "error":
                return ProbeFault(message["kind"], message["message"], ())
            assert message["type"] in {"hello", "progress", "batch_point"}, message
            if message["type"] == "batch_point":
                curve.append(read_batch_point(message))
        child, self._child = self._child, None
        raise AssertionError(f"the worker {child.died_of()}: {child.last_words()}")

    def close(self):
        """Ends it."""
        if self._child is not None:
            self._child.kill()
