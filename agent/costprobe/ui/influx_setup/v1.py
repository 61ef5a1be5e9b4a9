"""Set-up of an InfluxDB 1.x: databases, retention, continuous queries, a user with write access."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import Any

from costprobe.adapters.http.access import Secret
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.line_protocol import identifier, literal
from costprobe.core.units import parse_duration_s
from costprobe.delivery.influx import InfluxV1Config
from costprobe.ui.influx_setup.influxql import (
    InfluxqlApi,
    create_database,
    create_policy,
    create_query,
    duration,
    is_same,
    query_name,
)
from costprobe.ui.influx_setup.steps import (
    HOURLY,
    ROLLED,
    SetupError,
    SetupOptions,
    SetupStep,
    retention_text,
    write_new_secret,
)

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

    def _run(self, text: str, *hidden: str) -> None:
        self._api.query(text, *hidden)

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
            raise SetupError(f"user {user}: set a file for the password (password_file)")
        if not path.exists():
            write_new_secret(path, lambda: secrets.token_urlsafe(PASSWORD_BYTES))
        try:
            password = Secret("password", path).read()
        except Misconfigured as error:
            raise SetupError(error.reason) from None
        quoted = literal(password)
        text = f"CREATE USER {identifier(user)} WITH PASSWORD {quoted}"
        self._run(text, password, quoted)


def _rows(series: list[dict[str, Any]]) -> list[list[Any]]:
    return [row for table in series for row in table.get("values", [])]
