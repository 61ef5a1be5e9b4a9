"""What the tests need to know of an engine."""

from abc import ABC, abstractmethod
from pathlib import Path

from engines.environment import environment, lock
from fakes.servers import free_port

# Programs that the interpreters of the engines run.
MODELS = Path(__file__).parent / "models"


class Engine(ABC):
    """A real engine with a tiny model of random weights.

    Attributes:
        name: Of its environment.
        package: Its package, whose pinned version is that of the engine.
        preset: `engine` of the service.
        shows_start: Whether its counters show when its process or they began.
        ready_path: Answers 200 once the engine can be used.
    """

    name = ""
    package = ""
    preset = ""
    shows_start = True
    ready_path = "/health"

    def __init__(self, folder):
        self.folder = folder
        self.venv = environment(self.name)
        self.python = self.venv / "bin" / "python"
        self.port, self.metrics_port, self.grpc_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ready_url = self.url + self.ready_path
        self.metrics_url = f"{self.url}/metrics"

    @classmethod
    def version(cls):
        """Return the package and its version, as pinned."""
        lines = lock(cls.name).splitlines()
        pinned = (x.removeprefix("# sources: ") for x in lines)
        return next(x for x in pinned if x.startswith(f"{cls.package}==")).replace("==", " ")

    def close(self):  # noqa: B027 - most engines run nothing beside their server
        """Close what runs beside its server."""

    def probe(self):
        """Return the keys of a probe of it; None if it has no API that is probed."""
        return

    @abstractmethod
    def command(self):
        """Return its command line."""

    def env(self):
        """Return its environment variables."""
        return {}

    @abstractmethod
    def warm_up(self):
        """Make the first calls, which are slow; return the client's tally."""

    def load(self):
        """Send a known load with answers, errors and aborted calls; return the client's tally.

        An engine without counters (`preset`) has nothing to compare with: one timed call.
        """
        return self.timed()

    @abstractmethod
    def timed(self):
        """Send one call as the probe does; return the client's tally."""

    def expected(self, tally):
        """Return what the engine should count of a tally, as the lowest and highest value."""
        return {
            "requests": (tally.requests, tally.requests),
            "errors": (tally.refused, tally.refused),
            "tokens_in": (tally.tokens_in, tally.tokens_in + tally.aborted_tokens_in),
            "tokens_out": (tally.tokens_out, tally.tokens_out + tally.aborted_tokens_out),
        }
