"""HTTP requests to the database of a fleet: bounded, with its credentials and tenant."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from costprobe.adapters.fleet.settings import FleetConfig
from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import Rejected, RetryLater
from costprobe.adapters.net.further_headers import FurtherHeaders
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.adapters.net.secret import Secret, credentials_folder
from costprobe.adapters.net.status import (
    ACCEPTED,
    Hints,
    HttpResponse,
    json_object,
    raise_for_status,
)
from costprobe.core.bounded import (
    MAX_BYTES,
    OversizedInputError,
    UnusableInputError,
    bounded_json,
)
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

_HINTS: Final = Hints(
    unauthorized="check token_file, password_file or key_file of [fleet]",
    not_found="check url, kind and tenant of [fleet]",
    unexpected="check url and kind of [fleet]",
)
_TOO_MANY_REQUESTS: Final = 429
# VictoriaMetrics quotes the query, which may be longer than the message that is kept.
_QUERY: Final = re.compile(r'"(?:[^"\\]|\\.){40,}"')

# Questions at a time: the database computes two while the answer of another is parsed.
PARALLEL: Final = 3


class Throttled(RetryLater):
    """The database limits the rate of requests: fewer of them help, not smaller ones."""


class Transport:
    """Sends queries and returns JSON objects. Thread-safe.

    Args:
        config: The section [fleet].
        clock: For a Retry-After date.
    """

    def __init__(self, config: FleetConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        folder = credentials_folder(os.environ)
        self._password = Secret("password", config.password_file, None, folder)
        self._token = Secret("token", config.token_file, config.token_credential, folder)
        limits = ExchangeLimits(config.timeout_s, config.timeout_s, max_body_bytes=MAX_BYTES + 1)
        self._http = HttpClient(
            limits, ca_file=config.ca_file, keep=PARALLEL, further_headers=FurtherHeaders(config)
        )

    def post(self, path: str, form: Mapping[str, str]) -> list[dict[str, Any]]:
        """Send a form to a path below the section's URL and return the JSON objects of the response.

        There is one a line, or one over all lines; at least one.

        Raises:
            Throttled: The database limits the rate of requests.
            RetryLater: It is unreachable, overloaded or too slow.
            Rejected: It rejected the query, or its answer is too large or no JSON object.
            Misconfigured: URL, certificates or credentials are wrong.
        """
        headers, secrets = self._headers()
        destination = Destination.parse(self._config.url.rstrip("/") + path)
        response = self._http.request(
            "POST",
            destination,
            {**headers, "Content-Type": "application/x-www-form-urlencoded"},
            urlencode(form).encode(),
        )
        try:
            raise_for_status(
                without_query(response),
                now_s=self._clock.time_ns() / NS_PER_S,
                secrets=secrets,
                hints=_HINTS,
                is_tls=destination.is_tls,
                name=destination.name,
            )
        except RetryLater as error:
            if response.status != _TOO_MANY_REQUESTS:
                raise
            when = "later" if error.after_s is None else f"in {error.after_s:,.0f} s"
            raise Throttled(f"{error.reason}; try again {when}", error.after_s) from None
        try:
            return _objects(response.body)
        except UnusableInputError as error:
            raise Rejected(
                f"{destination.name}: unusable answer ({error}); {_HINTS.unexpected}",
                too_large=isinstance(error, OversizedInputError),
            ) from None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _headers(self) -> tuple[dict[str, str], list[str]]:
        """Return the headers, and the secrets in them."""
        config = self._config
        headers = {}
        if config.tenant is not None and config.kind == "prometheus":
            headers["X-Scope-OrgID"] = config.tenant
        if config.user is not None:
            password = self._password.read() if self._password.is_given else ""
            pair = base64.b64encode(f"{config.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            return headers, [password, pair] if password else []
        if self._token.is_given:
            token = self._token.read_ascii()
            # InfluxDB 2.x does not accept the scheme Bearer.
            scheme = "Token" if config.kind == "influxql" else "Bearer"
            headers["Authorization"] = f"{scheme} {token}"
            return headers, [token]
        return headers, []


def without_query(response: HttpResponse) -> HttpResponse:
    """Return a response whose error quotes no query: its reason may stand behind it."""
    if response.status in ACCEPTED:
        return response
    message = (json_object(response.body) or {}).get("error")
    if not isinstance(message, str):
        return response
    return replace(response, body=json.dumps({"error": _QUERY.sub('"…"', message)}).encode())


def _objects(body: bytes) -> list[dict[str, Any]]:
    """Parse the JSON objects of a response."""
    lines = body.strip().split(b"}\n{")
    # Together they are as bounded as one.
    document = bounded_json(b"[" + b"},{".join(lines) + b"]", MAX_BYTES)
    if not document or not all(isinstance(one, dict) for one in document):
        raise UnusableInputError("not a JSON object")
    return document  # type: ignore[no-any-return]
