"""Set-up of an InfluxDB 2.x: buckets, DBRP mappings, tasks, a token with write access.

It uses the APIs of influxdb-client. Source: the InfluxDB 2.x HTTP API reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from costprobe.adapters.http.errors import DeliveryError
from costprobe.delivery.influx import InfluxClient, InfluxV2Config
from costprobe.ui.influx_setup.steps import (
    HOUR_S,
    HOURLY,
    LATE_H,
    ROLLED,
    SetupError,
    SetupOptions,
    SetupStep,
    at_server,
    retention_text,
    write_new_secret,
)

ROLLUP_TASK = "costprobe hourly"
DEADMAN_TASK = "costprobe deadman"
# An agent without rows for this time counts as dead.
DEAD_AFTER_S = 300
# Id of our check; ids in InfluxDB have 16 hexadecimal digits.
_CHECK_ID = "1f3c057dead00000"

_ROLLUP = """import "date"

option task = {{name: {name}, every: 1h, offset: 5m}}

stop = date.truncate(t: now(), unit: 1h)
start = date.sub(d: {late_h}h, from: stop)
"""
_ROLLED = """
from(bucket: {source})
    |> range(start: start, stop: stop)
    |> filter(fn: (r) => r._measurement == {measurement}{basis})
    |> filter(fn: (r) => {fields})
    |> aggregateWindow(every: 1h, fn: {kind}, timeSrc: "_start", createEmpty: false)
    |> to(bucket: {target})
"""
_DEADMAN = """import "experimental"
import "influxdata/influxdb/monitor"

option task = {{name: {name}, every: 1m}}

from(bucket: {source})
    |> range(start: -1d)
    |> filter(fn: (r) => r._measurement == "agent" and r._field == "rss_bytes")
    |> group(columns: ["host"])
    |> monitor.deadman(t: experimental.subDuration(from: now(), d: {dead_after_s}s))
    |> monitor.check(
        crit: (r) => r.dead,
        messageFn: (r) => "costprobe on ${{r.host}} has been silent for {dead_after_s} s",
        data: {{_check_id: "{check_id}", _check_name: {name}, _type: "deadman", tags: {{}}}},
    )
"""


def string(text: str) -> str:
    """Quote a string; a dollar sign before a brace would start an expression."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return '"' + escaped.replace("\n", "\\n") + '"'


def rollup_task(source: str, target: str) -> str:
    """Return the task that computes the hourly rows of all series.

    Args:
        source: Bucket that it reads.
        target: Bucket that it writes to.
    """
    head = _ROLLUP.format(name=string(ROLLUP_TASK), late_h=LATE_H)
    return head + "".join(
        _ROLLED.format(
            source=string(source),
            target=string(target),
            measurement=string(rolled.measurement),
            basis=f" and r.basis == {string(rolled.basis)}" if rolled.basis else "",
            fields=" or ".join(f"r._field == {string(field)}" for field in fields),
            kind=kind,
        )
        for rolled in ROLLED
        for kind, fields in rolled.fields.items()
    )


def deadman_task(source: str) -> str:
    """Return the check of a bucket that writes a critical status for each host without rows of `agent`."""
    return _DEADMAN.format(
        name=string(DEADMAN_TASK),
        source=string(source),
        dead_after_s=DEAD_AFTER_S,
        check_id=_CHECK_ID,
    )


POLICY = "autogen"


class InfluxV2Setup:
    """Compares an organization with its required parts.

    Args:
        client: The server, authorized with an all-access token.
        config: The section of the sink.
        options: Options of the set-up.
        secret_file: File of the sink's token; None to create none.
    """

    def __init__(
        self,
        client: InfluxClient,
        config: InfluxV2Config,
        options: SetupOptions,
        secret_file: Path | None,
    ) -> None:
        self._library = client.library
        self._models = client.models
        self._url = config.url
        self._org = config.org
        self._bucket = config.bucket
        self._options = options
        self._secret_file = secret_file
        self._org_id = ""
        # Ids of the existing buckets; a step adds the bucket that it creates.
        self._bucket_ids: dict[str, str] = {}

    def steps(self) -> list[SetupStep]:
        """Return the required parts in the order of their creation.

        Raises:
            SetupError: The organization cannot be read.
        """
        self._org_id = self._organization()
        hourly = self._bucket + HOURLY
        options = self._options
        steps = [
            self._bucket_step(self._bucket, options.keep_s),
            self._bucket_step(hourly, options.keep_hourly_s),
            self._mapping_step(self._bucket),
            self._mapping_step(hourly),
            self._task_step(ROLLUP_TASK, rollup_task(self._bucket, hourly)),
            self._task_step(DEADMAN_TASK, deadman_task(self._bucket)),
        ]
        return steps + ([self._token_step(self._secret_file)] if self._secret_file else [])

    def _organization(self) -> str:
        api = self._library.organizations_api()
        try:
            organizations = self._call(api.find_organizations, org=self._org)
        except SetupError as error:
            hint = "InfluxDB 3.x needs only a token: see docs/howto/databases.md"
            raise SetupError(f"organization {self._org}: {error}; {hint}") from None
        for org in organizations or []:
            if org.name == self._org:
                return str(org.id)
        raise SetupError(
            f"organization {self._org!r} does not exist, or this token cannot read it; check org"
        )

    def _bucket_step(self, bucket: str, keep_s: float) -> SetupStep:
        api = self._library.buckets_api()
        buckets = self._call(api.find_buckets, org_id=self._org_id, name=bucket, limit=1)
        for found_bucket in buckets.buckets or []:
            if found_bucket.name == bucket:
                self._bucket_ids[bucket] = str(found_bucket.id)
                is_s = sum(rule.every_seconds or 0 for rule in found_bucket.retention_rules or [])
                # A shorter retention would delete rows, which is left to the operator.
                is_same = is_s == _retention_seconds(keep_s)
                note = "" if is_same else f"not {retention_text(keep_s)}; change it there"
                return SetupStep(f"bucket {bucket}, {retention_text(is_s)}", note=note)
        create = partial(self._create_bucket, bucket, keep_s)
        return SetupStep(f"bucket {bucket}, {retention_text(keep_s)}", create)

    def _create_bucket(self, bucket: str, keep_s: float) -> None:
        rule = self._models.BucketRetentionRules(
            type="expire", every_seconds=_retention_seconds(keep_s)
        )
        request = self._models.PostBucketRequest(
            org_id=self._org_id, name=bucket, retention_rules=[rule]
        )
        created = self._call(self._library.buckets_api().create_bucket, request)
        if not created.id:
            raise SetupError(f"{self._url}: the response has no id of bucket {bucket}")
        self._bucket_ids[bucket] = str(created.id)

    def _mapping_step(self, bucket: str) -> SetupStep:
        subject = f"DBRP mapping from InfluxQL's database {bucket} to the bucket"
        if bucket in self._bucket_ids:
            api = self._models.DBRPsService(self._library.api_client)
            mappings = self._call(api.get_dbr_ps, org_id=self._org_id, db=bucket)
            for mapping in mappings.content or []:
                if mapping.bucket_id == self._bucket_ids[bucket] and mapping.default:
                    return SetupStep(subject)
        return SetupStep(subject, partial(self._create_mapping, bucket))

    def _create_mapping(self, bucket: str) -> None:
        request = self._models.DBRPCreate(
            org_id=self._org_id,
            bucket_id=self._bucket_ids[bucket],
            database=bucket,
            retention_policy=POLICY,
            default=True,
        )
        self._call(self._models.DBRPsService(self._library.api_client).post_dbrp, request)

    def _task_step(self, name: str, text: str) -> SetupStep:
        subject, api = f"task {name}", self._library.tasks_api()
        for task in self._call(api.find_tasks, name=name, org_id=self._org_id) or []:
            if task.name == name:
                if task.flux == text:
                    return SetupStep(subject)
                update = self._models.TaskUpdateRequest(flux=text)
                replace = partial(self._call, api.update_task_request, task.id, update)
                return SetupStep(f"{subject}, replaced", replace)
        request = self._models.TaskCreateRequest(org_id=self._org_id, flux=text, status="active")
        return SetupStep(subject, partial(self._call, api.create_task, task_create_request=request))

    def _token_step(self, path: Path) -> SetupStep:
        subject = f"token that may only write to bucket {self._bucket}, in {path}"
        if path.exists():
            return SetupStep(subject, note="the file is not changed")
        return SetupStep(subject, partial(write_new_secret, path, self._create_token))

    def _create_token(self) -> str:
        resource = self._models.PermissionResource(
            type="buckets", id=self._bucket_ids[self._bucket], org_id=self._org_id
        )
        request = self._models.Authorization(
            org_id=self._org_id,
            description=f"costprobe: writes to {self._bucket}",
            permissions=[self._models.Permission(action="write", resource=resource)],
        )
        api = self._library.authorizations_api()
        created = self._call(api.create_authorization, authorization=request)
        if not isinstance(created.token, str) or not created.token:
            raise SetupError(f"{self._url}: the response has no token")
        return created.token

    def _call(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401 - the library's models
        """Call the library; translate its errors to SetupError."""
        try:
            return call(*args, **options)
        except DeliveryError as error:
            raise SetupError(at_server(self._url, error.reason)) from None
        except (AttributeError, TypeError, ValueError):
            # The library's models reject a document without their required fields.
            raise SetupError(f"{self._url}: not the response of an InfluxDB 2.x") from None


def _retention_seconds(keep_s: float) -> int:
    """Return a retention that InfluxDB accepts: whole seconds, at least an hour."""
    return max(HOUR_S, round(keep_s))
