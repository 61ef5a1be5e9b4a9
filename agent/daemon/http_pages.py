"""What the daemon says of itself over HTTP, and the server for it, as the configuration has it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agent.alert import Fault
from agent.clock import Clock
from agent.config import HttpConfig
from agent.daemon.faults import disk_of, present_faults
from agent.daemon.http_answer import Answer
from agent.model import Point
from agent.storage.errors import StoreError

logger = logging.getLogger(__name__)

JSON = "application/json"
GOOD, FAULTY = 200, 503


class Sources(NamedTuple):
    """Where the pages' content comes from; each may be called on any thread.

    Attributes:
        store: The store.
        lives: Whether each part lives, by name.
        status: What `infercost status` is made of.
        agent_row: A row of the series `agent` for now; None while there is none.
    """

    store: Path
    lives: Callable[[], Mapping[str, bool]]
    status: Callable[[], Mapping[str, Any]]
    agent_row: Callable[[], Point | None]


class Server(Protocol):
    """What serves the pages: agent.daemon.http_server.HttpServer."""

    @property
    def port(self) -> int:
        """TCP port."""
        ...

    def is_alive(self) -> bool:
        """Whether it answers."""
        ...

    def close(self) -> None:
        """Stops answering."""
        ...


class HttpPages:
    """The pages of a daemon; served nowhere until the configuration says where.

    Args:
        sources: Where their content comes from.
        clock: UTC.
    """

    def __init__(self, sources: Sources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._config = HttpConfig()
        self._server: Server | None = None
        self._fault: str | None = None

    def serve(self, config: HttpConfig) -> None:
        """Serves as configured from now on; what has not changed goes on undisturbed."""
        if config == self._config and self._fault is None:
            return
        self.close()
        self._config, self._fault = config, None
        address = config.address
        if address is None:
            return
        # Whoever serves nobody is not to pay for the server and the library.
        from agent.daemon.http_server import HttpServer  # noqa: PLC0415 - as said
        from agent.daemon.metrics import CONTENT_TYPE, AgentNow, Metrics  # noqa: PLC0415 - as said

        def now() -> AgentNow:
            return AgentNow(
                self._row(),
                self._sources.lives(),
                self._faults(),
                self._sources.status(),
                server.answers(),
                server.broken,
            )

        metrics = Metrics(self._sources.store, self._clock, config.window_s, config.max_series, now)
        pages = {
            "/healthz": self.health,
            "/metrics": lambda: Answer(GOOD, CONTENT_TYPE, metrics.text()),
        }
        server = HttpServer(pages, is_local=not config.allow_remote)
        try:
            server.start(*address)
        except OSError as error:
            self._fault = f"{config.listen}: {error.strerror or error}"
            logger.error("nothing is served over HTTP: %s", self._fault)  # noqa: TRY400 - its cause is in it
            return
        self._server = server
        logger.info("/healthz and /metrics are served on %s port %d", address[0], server.port)

    def health(self) -> Answer:
        """`/healthz`: 200 while every part lives and works, else 503 with those that do not."""
        dead = sorted(name for name, lives in self._sources.lives().items() if not lives)
        faults = self._faults()
        document = {
            "status": "dead" if dead else "faulty" if faults else "ok",
            "dead": dead,
            "faults": [
                {
                    "name": fault.name,
                    "subject": fault.subject,
                    "severity": fault.severity,
                    "text": fault.text,
                }
                for fault in faults
            ],
        }
        body = json.dumps(document).encode() + b"\n"
        return Answer(FAULTY if dead or faults else GOOD, JSON, body)

    def is_alive(self) -> bool:
        """Whether it is served, or is not to be."""
        return self._server is None or self._server.is_alive()

    def status(self) -> dict[str, Any]:
        """What `infercost status` shows: where it is served, and why it is not."""
        server = self._server
        return {
            "listen": self._config.listen,
            "port": server.port if server is not None else None,
            "fault": self._fault,
        }

    def close(self) -> None:
        """Stops serving; callable twice."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _faults(self) -> list[Fault]:
        try:
            disk = disk_of(self._sources.store)
        except OSError:
            disk = None
        return present_faults(self._sources.status(), disk)

    def _row(self) -> Point | None:
        try:
            return self._sources.agent_row()
        except StoreError:
            return None
