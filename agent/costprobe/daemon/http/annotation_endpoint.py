"""`POST /annotations`: annotations of deploy pipelines, for clients that have the token."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.net.page_response import JSON, PageResponse, PostRequest, json_error
from costprobe.adapters.net.secret import Secret
from costprobe.adapters.net.token_bucket import TokenBucket
from costprobe.core.bounded import bounded_object
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A pipeline deploys a few services at a time; one that repeats its request cannot fill the store.
BURST: Final = 30
PER_S: Final = 0.2

# Stores an annotation and returns it; None while the daemon starts or stops.
Annotate = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class AnnotationEndpoint:
    """Checks the token and the rate of requests, and passes annotations on; thread-safe.

    Args:
        token: Where the bearer token is; it is read for each request, because it may be rotated.
        annotate: Stores an annotation.
        clock: Its monotonic time limits the rate.
    """

    def __init__(self, token: Secret, annotate: Annotate, clock: Clock) -> None:
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
        if not self._token.is_given:
            return json_error(403, "annotations need http.token_file or http.token_credential")
        try:
            token = self._token.read_ascii()
        except Misconfigured as error:
            return json_error(503, f"the token cannot be read: {error.reason}")
        expected = f"Bearer {token}".encode()
        given = request.authorization.encode("latin-1", "replace")
        if not hmac.compare_digest(given, expected):
            words = "send the header Authorization: Bearer and the token of http.token_file"
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
