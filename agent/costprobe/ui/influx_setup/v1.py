"""Set-up of an InfluxDB 1.x: databases, retention, continuous queries, a user with write access."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from costprobe.adapters.http.access import Destination, Secret
from costprobe.adapters.http.errors import (
    DeliveryError,
    Hints,
    HttpResponse,
    Misconfigured,
    json_object,
    raise_for_status,
    server_message,
)
from costprobe.core.clock import Clock
from costprobe.core.line_protocol import identifier, literal
from costprobe.core.records import NS_PER_S
from costprobe.core.units import parse_duration_s
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.delivery.influx import InfluxV1Config, http_client
from costprobe.ui.influx_setup.steps import (
    HOUR_S,
    HOURLY,
    LATE_H,
    ROLLED,
    HourlySeries,
    SetupError,
    SetupOptions,
    SetupStep,
    at_server,
    retention_text,
    write_new_secret,
)

_HINTS = Hints(unauthorized="check the permissions of these credentials")


class InfluxqlApi:
    """Runs statements on one server.

    Args:
        config: The sink's section of the configuration: address, authority, proxy, timeout.
        clock: The host's clocks.
        headers: Headers of each request, with the credentials.
    """

    def __init__(
        self,
        config: HttpSinkConfig,
        clock: Clock,
        headers: Mapping[str, str],
    ) -> None:
        self._url = config.url.rstrip("/")
        self._clock = clock
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        self._http = http_client(config)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def query(self, text: str) -> list[dict[str, Any]]:
        """Run one statement; return its series.

        Raises:
            SetupError: No response, an error, or not the response of an InfluxDB 1.x.
        """
        response = self._post(urlencode({"q": text}).encode())
        results = (json_object(response.body) or {}).get("results")
        result = results[0] if isinstance(results, list) and len(results) == 1 else None
        if not isinstance(result, dict):
            limit = f", or longer than {len(response.body)} bytes" if response.is_truncated else ""
            raise SetupError(f"{self._url}: not the response of an InfluxDB 1.x{limit}")
        if "error" in result:
            message = server_message(json.dumps({"error": result["error"]}).encode())
            raise SetupError(f"{self._url}: {message}")
        return list(result.get("series", []))

    def _post(self, body: bytes) -> HttpResponse:
        try:
            destination = Destination.parse(self._url + "/query")
            response = self._http.request("POST", destination, self._headers, body)
            now_s = self._clock.time_ns() / NS_PER_S
            raise_for_status(response, now_s=now_s, hints=_HINTS, is_tls=destination.is_tls)
        except DeliveryError as error:
            raise SetupError(at_server(self._url, error.reason)) from None
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


DEFAULT_POLICY = "autogen"
PASSWORD_BYTES = 32


class InfluxV1Setup:
    """Compares a server with its required parts.

    Args:
        api: The server, with an administrator's credentials.
        config: The section of the sink.
        options: Options of the set-up.
        secret_file: File of the user's password; None without a user.
    """

    def __init__(
        self,
        api: InfluxqlApi,
        config: InfluxV1Config,
        options: SetupOptions,
        secret_file: Path | None,
    ) -> None:
        self._api = api
        self._user = config.user
        self._options = options
        self._secret_file = secret_file
        self._database = config.database
        self._policy = config.retention_policy or DEFAULT_POLICY

    def steps(self) -> list[SetupStep]:
        """Return the required parts in the order of their creation.

        Raises:
            SetupError: The server cannot be read.
        """
        hourly = self._database + HOURLY
        steps = [
            *self._database_steps(self._database, self._policy, self._options.keep_s),
            *self._database_steps(hourly, DEFAULT_POLICY, self._options.keep_hourly_s),
            *self._query_steps(hourly),
        ]
        return steps + (self._writer_steps(self._user) if self._user else [])

    def _run(self, text: str) -> None:
        self._api.query(text)

    def _database_steps(self, database: str, policy: str, keep_s: float) -> list[SetupStep]:
        subject = f"database {database}, {retention_text(keep_s)}"
        if [database] not in _rows(self._api.query("SHOW DATABASES")):
            text = create_database(database, policy, keep_s)
            return [SetupStep(subject, partial(self._run, text))]
        shown = f"SHOW RETENTION POLICIES ON {identifier(database)}"
        policies = {row[0]: row[1] for row in _rows(self._api.query(shown))}
        if policy not in policies:
            text = create_policy(database, policy, keep_s)
            return [
                SetupStep(f"database {database}"),
                SetupStep(
                    f"retention policy {policy}, {retention_text(keep_s)}", partial(self._run, text)
                ),
            ]
        # Shown as 720h0m0s; 0s means indefinitely.
        is_s = parse_duration_s(policies[policy])
        if is_s == float(duration(keep_s)[:-1]):
            return [SetupStep(subject)]
        # A shorter retention would delete rows, which is left to the operator.
        change = (
            f"ALTER RETENTION POLICY {identifier(policy)} ON {identifier(database)}"
            f" DURATION {duration(keep_s)}"
        )
        return [
            SetupStep(
                f"database {database}, {retention_text(is_s)}", note=f"to change that: {change}"
            )
        ]

    def _query_steps(self, hourly: str) -> list[SetupStep]:
        existing = {
            row[0]: row[1]
            for series in self._api.query("SHOW CONTINUOUS QUERIES")
            if series["name"] == self._database
            for row in series.get("values", [])
        }
        steps = []
        for rolled in ROLLED:
            name = query_name(rolled)
            subject = f"continuous query {name}"
            source, target = (self._database, self._policy), (hourly, DEFAULT_POLICY)
            text = create_query(rolled, source, target)
            if name not in existing:
                steps.append(SetupStep(subject, partial(self._run, text)))
            elif is_same(text, existing[name]):
                steps.append(SetupStep(subject))
            else:
                steps.append(SetupStep(f"{subject}, replaced", partial(self._replace, name, text)))
        return steps

    def _replace(self, name: str, text: str) -> None:
        drop = f"DROP CONTINUOUS QUERY {identifier(name)} ON {identifier(self._database)}"
        self._run(drop)
        self._run(text)

    def _writer_steps(self, user: str) -> list[SetupStep]:
        users = {row[0]: row[1] for row in _rows(self._api.query("SHOW USERS"))}
        subject, granted = f"user {user}", f"user {user} may write to {self._database}"
        grant = f"GRANT WRITE ON {identifier(self._database)} TO {identifier(user)}"
        if user not in users:
            create = partial(self._create_user, user)
            path = self._secret_file
            note = "" if path is None or path.exists() else f"its password will be in {path}"
            return [SetupStep(subject, create, note), SetupStep(granted, partial(self._run, grant))]
        if users[user]:
            return [
                SetupStep(
                    subject, note="is an administrator; a user with only write access is safer"
                )
            ]
        shown = self._api.query(f"SHOW GRANTS FOR {identifier(user)}")
        rights = {row[0]: row[1] for row in _rows(shown)}
        if rights.get(self._database) in {"WRITE", "ALL PRIVILEGES"}:
            return [SetupStep(subject), SetupStep(granted)]
        return [SetupStep(subject), SetupStep(granted, partial(self._run, grant))]

    def _create_user(self, user: str) -> None:
        path = self._secret_file
        if path is None:
            raise SetupError(f"user {user}: set a file for the password (password)")
        if not path.exists():
            write_new_secret(path, lambda: secrets.token_urlsafe(PASSWORD_BYTES))
        try:
            password = Secret.of_file(path, "password").read()
        except Misconfigured as error:
            raise SetupError(error.reason) from None
        self._run(f"CREATE USER {identifier(user)} WITH PASSWORD {literal(password)}")


def _rows(series: list[dict[str, Any]]) -> list[list[Any]]:
    return [row for table in series for row in table.get("values", [])]
