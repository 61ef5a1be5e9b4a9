"""The InfluxQL that sets up an InfluxDB 1.x, and its /query API.

Source: its query language reference, 1.x.
"""

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
from costprobe.core.line_protocol import identifier, literal
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.delivery.influx import http_client
from costprobe.ui.influx_setup.steps import HOUR_S, LATE_H, HourlySeries, SetupError

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


def duration(duration_s: float) -> str:
    """Format a duration in whole seconds; InfluxDB's minimum is an hour."""
    return f"{max(HOUR_S, round(duration_s))}s"


def create_database(database: str, policy: str, keep_s: float) -> str:
    """Return the statement that creates a database with a default retention policy."""
    return (
        f"CREATE DATABASE {identifier(database)} WITH DURATION {duration(keep_s)}"
        f" REPLICATION 1 NAME {identifier(policy)}"
    )


def create_policy(database: str, policy: str, keep_s: float) -> str:
    """Return the statement that creates another retention policy."""
    return (
        f"CREATE RETENTION POLICY {identifier(policy)} ON {identifier(database)}"
        f" DURATION {duration(keep_s)} REPLICATION 1"
    )


def query_name(rolled: HourlySeries) -> str:
    """Return the name of the continuous query of a series."""
    return f"costprobe_{rolled.name}_hourly"


def create_query(rolled: HourlySeries, source: tuple[str, str], target: tuple[str, str]) -> str:
    """Return the statement that creates the continuous query of a series' hourly rows.

    Args:
        rolled: The series.
        source: Database and retention policy that it reads.
        target: Database and retention policy that it writes to.
    """
    fields = ", ".join(
        f"{kind}({identifier(field)}) AS {identifier(field)}"
        for kind, fields in rolled.fields.items()
        for field in fields
    )
    series = identifier(rolled.measurement)
    into = f"{identifier(target[0])}.{identifier(target[1])}.{series}"
    from_ = f"{identifier(source[0])}.{identifier(source[1])}.{series}"
    where = f' WHERE "basis" = {literal(rolled.basis)}' if rolled.basis else ""
    select = f"SELECT {fields} INTO {into} FROM {from_}{where} GROUP BY time(1h), *"  # noqa: S608 - quoted
    head = f"{identifier(query_name(rolled))} ON {identifier(source[0])}"
    return f"CREATE CONTINUOUS QUERY {head} RESAMPLE EVERY 1h FOR {LATE_H}h BEGIN {select} END"


def is_same(ours: str, shown: str) -> bool:
    """Return whether two statements are equal; the server omits unnecessary quotes."""
    return ours.replace('"', "") == shown.replace('"', "")
