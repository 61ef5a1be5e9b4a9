"""What an InfluxDB 2.x lacks: buckets, DBRP mappings, tasks, a token that may only write.

Source: the InfluxDB 2.x HTTP API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agent.influx_setup import flux
from agent.influx_setup.http import Api
from agent.influx_setup.secret import write_new_secret
from agent.influx_setup.wanted import HOURLY, SetupError, Step, Wanted, kept
from agent.sinks.settings import SinkSettings

_HOUR_S = 3600
POLICY = "autogen"


class SetupV2:
    """Looks at an organization and says what there is to do.

    Args:
        api: The database, asked with a token of all access.
        settings: The sink that will write to it.
        wanted: How long rows are kept.
        secret_file: Where the sink's token is, or will be; None makes no token.
    """

    def __init__(
        self, api: Api, settings: SinkSettings, wanted: Wanted, secret_file: Path | None
    ) -> None:
        self._api = api
        self._org = settings.org
        self._bucket = settings.bucket or ""
        self._wanted = wanted
        self._secret_file = secret_file
        # What is made on the way is known by its name only once it is there.
        self._org_id = ""
        self._ids: dict[str, str] = {}

    def steps(self) -> list[Step]:
        """All that the organization should have, in the order in which it is made.

        Raises:
            SetupError: It cannot be looked at.
        """
        self._org_id = self._organization()
        hourly = self._bucket + HOURLY
        wanted = self._wanted
        rollup = flux.rollup_task(self._bucket, hourly, wanted.late_s)
        deadman = flux.deadman_task(self._bucket, wanted.dead_after_s)
        found = [
            self._kept(self._bucket, wanted.keep_s),
            self._kept(hourly, wanted.keep_hourly_s),
            self._mapped(self._bucket),
            self._mapped(hourly),
            self._task(flux.ROLLUP_TASK, rollup),
            self._task(flux.DEADMAN_TASK, deadman),
        ]
        return found + ([self._token(self._secret_file)] if self._secret_file else [])

    def _send(self, method: str, path: str, content: Mapping[str, object]) -> None:
        self._api.send(method, path, content)

    def _organization(self) -> str:
        try:
            found = self._api.get("/api/v2/orgs", org=self._org)
        except SetupError as error:
            hint = "InfluxDB 3.x needs no set-up but a token: see docs/grafana.md"
            raise SetupError(f"organization {self._org}: {error}; {hint}") from None
        for org in _list(found, "orgs"):
            if org.get("name") == self._org:
                return str(org["id"])
        raise SetupError(f"no organization {self._org!r} that this token may see; check org")

    def _kept(self, bucket: str, keep_s: float) -> Step:
        found = self._api.get("/api/v2/buckets", orgID=self._org_id, name=bucket, limit="1")
        for one in _list(found, "buckets"):
            if one.get("name") == bucket:
                self._ids[bucket] = str(one["id"])
                is_s = sum(rule.get("everySeconds", 0) for rule in one.get("retentionRules", []))
                # Shorter would delete what is there: that is the operator's to say.
                differs = "" if is_s == _whole(keep_s) else f"not {kept(keep_s)}; change it there"
                return Step(f"bucket {bucket}, {kept(is_s)}", note=differs)
        return Step(f"bucket {bucket}, {kept(keep_s)}", partial(self._make_bucket, bucket, keep_s))

    def _make_bucket(self, bucket: str, keep_s: float) -> None:
        rule = {"type": "expire", "everySeconds": _whole(keep_s)}
        content = {"orgID": self._org_id, "name": bucket, "retentionRules": [rule]}
        self._ids[bucket] = _id(self._api.send("POST", "/api/v2/buckets", content))

    def _mapped(self, bucket: str) -> Step:
        what = f"DBRP mapping: InfluxQL's database {bucket} is the bucket"
        if bucket in self._ids:
            found = self._api.get("/api/v2/dbrps", orgID=self._org_id, db=bucket)
            for one in _list(found, "content"):
                if one.get("bucketID") == self._ids[bucket] and one.get("default"):
                    return Step(what)
        return Step(what, partial(self._make_mapping, bucket))

    def _make_mapping(self, bucket: str) -> None:
        content = {
            "orgID": self._org_id,
            "bucketID": self._ids[bucket],
            "database": bucket,
            "retention_policy": POLICY,
            "default": True,
        }
        self._send("POST", "/api/v2/dbrps", content)

    def _task(self, called: str, text: str) -> Step:
        what = f"task {called}"
        found = self._api.get("/api/v2/tasks", orgID=self._org_id, name=called)
        for one in _list(found, "tasks"):
            if one.get("name") == called:
                if one.get("flux") == text:
                    return Step(what)
                path, content = f"/api/v2/tasks/{one['id']}", {"flux": text}
                return Step(f"{what}, anew", partial(self._send, "PATCH", path, content))
        made = {"orgID": self._org_id, "flux": text, "status": "active"}
        return Step(what, partial(self._send, "POST", "/api/v2/tasks", made))

    def _token(self, path: Path) -> Step:
        what = f"token that may only write to bucket {self._bucket}, in {path}"
        if path.exists():
            return Step(what, note="the file is kept as it is")
        return Step(what, partial(write_new_secret, path, self._make_token))

    def _make_token(self) -> str:
        resource = {"type": "buckets", "id": self._ids[self._bucket], "orgID": self._org_id}
        content = {
            "orgID": self._org_id,
            "description": f"infercost: writes to {self._bucket}",
            "permissions": [{"action": "write", "resource": resource}],
        }
        made = self._api.send("POST", "/api/v2/authorizations", content)
        token = made.get("token") if isinstance(made, dict) else None
        if not isinstance(token, str) or not token:
            raise SetupError("the database gave no token")
        return token


def _whole(keep_s: float) -> int:
    return max(_HOUR_S, round(keep_s))


def _list(answer: Any, key: str) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    found = answer.get(key) if isinstance(answer, dict) else None
    return [one for one in found or [] if isinstance(one, dict)]


def _id(answer: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        raise SetupError("the database did not say what it made")
    return str(answer["id"])
