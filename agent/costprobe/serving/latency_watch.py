"""Whether a service's production latency rises above its level before, during a load curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import LATENCIES, LatencyTotal, MetricsFetcher, read_latency
from costprobe.serving.settings import ServiceConfig

# Fewer requests give no level.
REQUESTS_MIN: Final = 3
# Length in s of the observation before the load.
BASE_S = 15.0
POLL_S = 5.0
# Readings that may fail in a row.
FAILURES_MAX = 2
Read = Callable[[], LatencyTotal]


class LatencyWatch:
    """Compare the mean latency of a service with its level before the load.

    Args:
        rise_max: Factor of the level before that must not be exceeded.

    Attributes:
        level: Mean latency before the load; None without requests: nobody is affected then.
    """

    def __init__(self, rise_max: float) -> None:
        self._rise_max = rise_max
        self._last: tuple[float, float] | None = None
        self.level: float | None = None

    def begin(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        """Set the level from two readings of total latency and requests before the load."""
        self._last = after
        self.level = _mean(before, after)

    def update(self, reading: tuple[float, float]) -> float | None:
        """Add a reading; return the factor of the level, if it is above the allowed one.

        Args:
            reading: Total latency and requests since the start of the service.
        """
        if self._last is None or reading[1] < self._last[1]:
            self._last = reading  # the service was restarted
        mean = _mean(self._last, reading)
        if mean is None:
            return None
        self._last = reading
        rise = mean / self.level if self.level else 0.0
        return rise if rise > self._rise_max else None


def _mean(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    requests = after[1] - before[1]
    return (after[0] - before[0]) / requests if requests >= REQUESTS_MIN else None


class ProductionWatch:
    """Context in which the latency of services is compared with their level before.

    Requests of the load curve to the same server are in its metrics, too: then the curve ends as soon as
    its own requests wait, because those of production wait with them.

    Args:
        services: Name and reading of each service.
        rise_max: Factor of the level before that must not be exceeded.
        wait: Waits so many seconds, or until the command has to end.
        base_s: Length in s of the observation before the load.
        poll_s: Time between two readings in s.

    Attributes:
        why_stop: Why the load has to end: a latency that rose too much, or is unknown; empty if it
            need not.
    """

    def __init__(
        self,
        services: Sequence[tuple[str, Read]],
        rise_max: float,
        wait: Callable[[float], object],
        *,
        base_s: float = BASE_S,
        poll_s: float = POLL_S,
    ) -> None:
        self._services = [(name, read, LatencyWatch(rise_max)) for name, read in services]
        self._wait, self._base_s, self._poll_s = wait, base_s, poll_s
        self._ended = Event()
        self.why_stop = ""
        self._failures: dict[str, int] = {}
        self._thread = Thread(target=self._poll, name="production", daemon=True)

    def __enter__(self) -> Self:
        """Observe the level before the load.

        Raises:
            ScrapeError: The metrics of a service cannot be read.
        """
        before = [self._first(name, read) for name, read, _ in self._services]
        if self._services:
            self._wait(self._base_s)
        for (name, read, watch), reading in zip(self._services, before, strict=True):
            watch.begin(reading, self._first(name, read))
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the observation."""
        self._ended.set()
        self._thread.join()

    @property
    def in_production(self) -> list[str]:
        """Services that had requests before the load."""
        return [name for name, _, watch in self._services if watch.level is not None]

    def _first(self, name: str, read: Read) -> LatencyTotal:
        try:
            return read()
        except ScrapeError as error:
            raise ScrapeError(
                f"service {name}: its latency cannot be watched ({error}); check its url"
            ) from error

    def _poll(self) -> None:
        while not self._ended.wait(self._poll_s):
            for name, read, watch in self._services:
                try:
                    rise = watch.update(read())
                except ScrapeError as error:
                    self._failures[name] = self._failures.get(name, 0) + 1
                    if self._failures[name] >= FAILURES_MAX:
                        self.why_stop = f"service {name}: its latency cannot be watched ({error})"
                    continue
                self._failures[name] = 0
                if rise is not None:
                    times = f"{rise:.1f} times the level before the load"
                    self.why_stop = f"service {name}: its latency rose to {times}"


def watched(services: Sequence[ServiceConfig], devices: Sequence[str]) -> list[tuple[str, Read]]:
    """Return name and reading of each service on some devices whose engine counts latency.

    Args:
        services: The configured services.
        devices: Names of the devices.
    """
    found: list[tuple[str, Read]] = []
    for service in services:
        if service.engine in LATENCIES and set(service.devices) & set(devices):
            fetch = MetricsFetcher(service)
            found.append((service.name, partial(read_latency, service, fetch)))
    return found
