"""InfluxQL over the /query API of InfluxDB 1.x."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from costprobe.adapters.http.access import Destination
from costprobe.adapters.http.errors import (
    DeliveryError,
    Hints,
    HttpResponse,
    json_object,
    raise_for_status,
    server_message,
)
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.delivery.influx import http_client
from costprobe.ui.influx_setup.steps import SetupError

_HINTS = Hints(unauthorized="check the permissions of these credentials")


class InfluxqlApi:
    """Runs statements on one server.

    Args:
        config: The sink's section of the configuration: address, authority, proxy, timeout.
        clock: The host's clocks.
        headers: Headers of each request, with the credentials.
        secrets: Secrets, which no error may contain.
    """

    def __init__(
        self,
        config: HttpSinkConfig,
        clock: Clock,
        headers: Mapping[str, str],
        secrets: Sequence[str],
    ) -> None:
        self._url = config.url.rstrip("/")
        self._clock = clock
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        self._secrets = secrets
        self._http = http_client(config)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def query(self, text: str, *secrets: str) -> list[dict[str, Any]]:
        """Run one statement; return its series.

        Args:
            text: The statement.
            secrets: Secrets in the statement, which no error may contain.

        Raises:
            SetupError: No response, an error, or not the response of an InfluxDB 1.x.
        """
        hidden = [*self._secrets, *secrets]
        response = self._post(urlencode({"q": text}).encode(), hidden)
        results = (json_object(response.body) or {}).get("results")
        result = results[0] if isinstance(results, list) and len(results) == 1 else None
        if not isinstance(result, dict):
            limit = f", or longer than {len(response.body)} bytes" if response.is_truncated else ""
            raise SetupError(f"{self._url}: not the response of an InfluxDB 1.x{limit}")
        if "error" in result:
            message = server_message(json.dumps({"error": result["error"]}).encode(), hidden)
            raise SetupError(f"{self._url}: {message}")
        return list(result.get("series", []))

    def _post(self, body: bytes, secrets: Sequence[str]) -> HttpResponse:
        try:
            destination = Destination.parse(self._url + "/query")
            response = self._http.request("POST", destination, self._headers, body)
            now_s = self._clock.time_ns() / NS_PER_S
            raise_for_status(
                response, now_s=now_s, secrets=secrets, hints=_HINTS, is_tls=destination.is_tls
            )
        except DeliveryError as error:
            raise SetupError(f"{self._url}: {error.reason}") from None
        return response
