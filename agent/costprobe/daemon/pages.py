"""The daemon's `/healthz`, `/metrics` and `/annotations`, served at the configured address.

`POST /annotations` takes annotations of deploy pipelines, from clients that have the token.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from costprobe.adapters.http.access import Secret
from costprobe.adapters.http.errors import Misconfigured, TokenBucket
from costprobe.adapters.http.responses import JSON, PageResponse, PostRequest, json_error
from costprobe.adapters.http.settings import HttpConfig
from costprobe.adapters.store.database import StoreError
from costprobe.alerts.faults import disk_of, present_faults
from costprobe.core.clock import Clock
from costprobe.core.incident import Fault
from costprobe.core.outside import bounded_object
from costprobe.core.records import NS_PER_S

if TYPE_CHECKING:
    from costprobe.adapters.http.server import HttpServer
    from costprobe.daemon.parts import HostParts

# A pipeline deploys a few services at a time; one that repeats its request cannot fill the store.
BURST: Final = 30
PER_S: Final = 0.2

# Stores an annotation and returns it; None while the daemon starts or stops.
Annotate = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class AnnotationEndpoint:
    """Checks the token and the rate of requests, and passes annotations on; thread-safe.

    Args:
        token: Where the bearer token is; None to refuse all. It is read for each request, because it may be rotated.
        annotate: Stores an annotation.
        clock: Its monotonic time limits the rate.
    """

    def __init__(self, token: Secret | None, annotate: Annotate, clock: Clock) -> None:
        self._token = token
        self._annotate = annotate
        self._clock = clock
        self._bucket = TokenBucket(PER_S, BURST, self._now_s())
        self._lock = Lock()

    def answer(self, request: PostRequest) -> PageResponse:
        """Return 201 and the annotation as JSON, or an error as JSON."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            annotation = bounded_object(request.body)
            stored = self._annotate({"author": request.client, **annotation})
        except ValueError as error:
            return json_error(400, str(error))
        if stored is None:
            return json_error(503, "the daemon is starting or stopping; retry in a few seconds")
        return PageResponse(201, JSON, json.dumps(stored).encode() + b"\n")

    def _refusal(self, request: PostRequest) -> PageResponse | None:
        if self._token is None:
            return json_error(403, "annotations need http.token")
        try:
            token = self._token.read_ascii()
        except Misconfigured as error:
            return json_error(503, f"the token cannot be read: {error.reason}")
        expected = f"Bearer {token}".encode()
        given = request.authorization.encode("latin-1", "replace")
        if not hmac.compare_digest(given, expected):
            words = "send the header Authorization: Bearer and the token that http.token names"
            return json_error(401, words, ("WWW-Authenticate", "Bearer"))
        with self._lock:
            wait_s = self._bucket.wait_s(self._now_s(), 1)
            if wait_s <= 0:
                self._bucket.take()
                return None
        return json_error(
            429, "too many annotations; retry later", ("Retry-After", f"{wait_s:.0f}")
        )

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S


logger = logging.getLogger(__name__)

GOOD, FAULTY = 200, 503


class HttpPages:
    """The daemon's pages; not served until the configuration names an address.

    Args:
        parts: What they report; each of its methods may be called on any thread.
        liveness: Returns whether each part is alive, by name.
    """

    def __init__(self, parts: HostParts, liveness: Callable[[], Mapping[str, bool]]) -> None:
        self._parts = parts
        self._liveness = liveness
        self._config = HttpConfig()
        self._server: HttpServer | None = None
        self._fault: str | None = None

    def serve(self, config: HttpConfig) -> None:
        """Serve as configured; do nothing if the configuration is unchanged."""
        if config == self._config and self._fault is None:
            return
        self.close()
        self._config, self._fault = config, None
        address = config.address
        if address is None:
            return
        # Imported here: a daemon that serves no page does not need the memory.
        from costprobe.adapters.http.server import HttpServer  # noqa: PLC0415 - as above
        from costprobe.daemon.metrics import (  # noqa: PLC0415 - as above
            CONTENT_TYPE,
            OPENMETRICS,
            OPENMETRICS_CONTENT_TYPE,
            AgentNow,
            Metrics,
        )

        def now() -> AgentNow:
            try:
                row = self._parts.agent_point()
            except StoreError:
                row = None
            status = self._parts.status()
            alive, faults = self._liveness(), self._faults(status)
            return AgentNow(row, alive, faults, status, server.answers(), server.broken)

        store, clock = self._parts.store.path, self._parts.clock
        metrics = Metrics(store, clock, config.window_s, config.max_series, now)
        pages = {
            "/healthz": self.health,
            "/metrics": lambda: PageResponse(GOOD, CONTENT_TYPE, metrics.text()),
        }
        annotations = AnnotationEndpoint(config.token, self._parts.annotate, clock)
        server = HttpServer(
            pages,
            accepted={
                ("/metrics", OPENMETRICS): lambda: PageResponse(
                    GOOD, OPENMETRICS_CONTENT_TYPE, metrics.openmetrics()
                )
            },
            posts={"/annotations": annotations.answer},
            allowed_hosts=config.allowed_hosts,
            reserved=["/healthz"],
        )
        try:
            server.start(*address)
        except OSError as error:
            self._fault = f"{config.listen}: {error.strerror or error}"
            logger.error("HTTP is not served: %s", self._fault)  # noqa: TRY400 - its cause is in it
            return
        self._server = server
        logger.info("/healthz and /metrics are served on %s port %d", address[0], server.port)

    def health(self) -> PageResponse:
        """Return `/healthz`: 200 while every part is alive and works, or else 503 with the others."""
        dead = sorted(name for name, is_alive in self._liveness().items() if not is_alive)
        faults = self._faults(self._parts.status())
        document = {
            "status": "dead" if dead else "faulty" if faults else "ok",
            "dead": dead,
            "faults": [
                {
                    **{name: getattr(fault, name) for name in ("name", "subject", "severity")},
                    "text": fault.words,
                }
                for fault in faults
            ],
        }
        body = json.dumps(document).encode() + b"\n"
        return PageResponse(FAULTY if dead or faults else GOOD, JSON, body)

    def is_alive(self) -> bool:
        """Return False if the server was started and its thread has ended."""
        return self._server is None or self._server.is_alive()

    def status(self) -> dict[str, Any]:
        """Return the address of the pages, and the fault if they are not served."""
        server = self._server
        return {
            "listen": self._config.listen,
            "port": server.port if server is not None else None,
            "fault": self._fault,
        }

    def close(self) -> None:
        """Stop serving; may be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _faults(self, status: Mapping[str, Any]) -> list[Fault]:
        return present_faults(status, disk_of(self._parts.store.path))
