"""What an InfluxDB 1.x lacks: databases, retention, continuous queries, a user who may only write."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import Any

from agent.influx_setup import influxql
from agent.influx_setup.http import Api
from agent.influx_setup.rollup import ROLLED
from agent.influx_setup.secret import write_new_secret
from agent.influx_setup.wanted import HOURLY, SetupError, Step, Wanted, kept
from agent.secret_file import read_secret
from agent.sinks.settings import SinkSettings
from agent.units import parse_duration_s

DEFAULT_POLICY = "autogen"
PASSWORD_BYTES = 32


class SetupV1:
    """Looks at a database and says what there is to do.

    Args:
        api: The database, asked as one who may administer it.
        settings: The sink that will write to it.
        wanted: How long rows are kept.
        secret_file: Where the user's password is, or will be; None where there is no user.
    """

    def __init__(
        self, api: Api, settings: SinkSettings, wanted: Wanted, secret_file: Path | None
    ) -> None:
        self._api = api
        self._user = settings.user
        self._wanted = wanted
        self._secret_file = secret_file
        self._database = settings.database or ""
        self._policy = settings.retention_policy or DEFAULT_POLICY

    def steps(self) -> list[Step]:
        """All that the database should have, in the order in which it is made.

        Raises:
            SetupError: It cannot be looked at.
        """
        hourly = self._database + HOURLY
        found = [
            *self._kept(self._database, self._policy, self._wanted.keep_s),
            *self._kept(hourly, DEFAULT_POLICY, self._wanted.keep_hourly_s),
            *self._queries(hourly),
        ]
        return found + (self._writer(self._user) if self._user else [])

    def _run(self, text: str, *hidden: str) -> None:
        self._api.query(text, *hidden)

    def _kept(self, database: str, policy: str, keep_s: float) -> list[Step]:
        what = f"database {database}, {kept(keep_s)}"
        if [database] not in _rows(self._api.query("SHOW DATABASES")):
            text = influxql.create_database(database, policy, keep_s)
            return [Step(what, partial(self._run, text))]
        shown = f"SHOW RETENTION POLICIES ON {influxql.name(database)}"
        policies = {row[0]: row[1] for row in _rows(self._api.query(shown))}
        if policy not in policies:
            text = influxql.create_policy(database, policy, keep_s)
            return [
                Step(f"database {database}"),
                Step(f"retention policy {policy}, {kept(keep_s)}", partial(self._run, text)),
            ]
        # Told as 720h0m0s; 0s is for ever.
        is_s = parse_duration_s(policies[policy])
        if is_s == float(influxql.duration(keep_s)[:-1]):
            return [Step(what)]
        # Shorter would delete what is there: that is the operator's to say.
        change = (
            f"ALTER RETENTION POLICY {influxql.name(policy)} ON {influxql.name(database)}"
            f" DURATION {influxql.duration(keep_s)}"
        )
        return [Step(f"database {database}, {kept(is_s)}", note=f"to change that: {change}")]

    def _queries(self, hourly: str) -> list[Step]:
        there = {
            row[0]: row[1]
            for series in self._api.query("SHOW CONTINUOUS QUERIES")
            if series["name"] == self._database
            for row in series.get("values", [])
        }
        found = []
        for measurement in ROLLED:
            called = influxql.query_name(measurement)
            what = f"continuous query {called}"
            text = influxql.create_query(
                measurement,
                (self._database, self._policy),
                (hourly, DEFAULT_POLICY),
                self._wanted.late_s,
            )
            if called not in there:
                found.append(Step(what, partial(self._run, text)))
            elif influxql.is_same(text, there[called]):
                found.append(Step(what))
            else:
                found.append(Step(f"{what}, anew", partial(self._replace, called, text)))
        return found

    def _replace(self, called: str, text: str) -> None:
        drop = f"DROP CONTINUOUS QUERY {influxql.name(called)} ON {influxql.name(self._database)}"
        self._run(drop)
        self._run(text)

    def _writer(self, user: str) -> list[Step]:
        users = {row[0]: row[1] for row in _rows(self._api.query("SHOW USERS"))}
        what, granted = f"user {user}", f"user {user} may write to {self._database}"
        grant = f"GRANT WRITE ON {influxql.name(self._database)} TO {influxql.name(user)}"
        if user not in users:
            make = partial(self._make_user, user)
            path = self._secret_file
            note = "" if path is None or path.exists() else f"password to be in {path}"
            return [Step(what, make, note), Step(granted, partial(self._run, grant))]
        if users[user]:
            return [Step(what, note="administrates: a user who may only write is safer")]
        shown = self._api.query(f"SHOW GRANTS FOR {influxql.name(user)}")
        rights = {row[0]: row[1] for row in _rows(shown)}
        if rights.get(self._database) in {"WRITE", "ALL PRIVILEGES"}:
            return [Step(what), Step(granted)]
        return [Step(what), Step(granted, partial(self._run, grant))]

    def _make_user(self, user: str) -> None:
        path = self._secret_file
        if path is None:
            raise SetupError(f"user {user}: name a file for the password (password_file)")
        if not path.exists():
            write_new_secret(path, lambda: secrets.token_urlsafe(PASSWORD_BYTES))
        try:
            password = read_secret(path, "password")
        except ValueError as error:
            raise SetupError(str(error)) from None
        quoted = influxql.string(password)
        text = f"CREATE USER {influxql.name(user)} WITH PASSWORD {quoted}"
        self._run(text, password, quoted)


def _rows(series: list[dict[str, Any]]) -> list[list[Any]]:
    return [row for one in series for row in one.get("values", [])]
