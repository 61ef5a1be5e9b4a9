"""Prometheus Alertmanager: its API v2; firing alerts are sent again before they expire there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from costprobe.adapters.http.access import (
    CaFile,
    Destination,
    WithHeaders,
    WithPassword,
    WithToken,
    basic,
    bearer,
)
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.config.fields import IS_URL, Duration, key
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import (
    NotifierConfig,
    explanation_lines,
    rfc3339,
    shortened,
)
from costprobe.delivery.webhook import HttpNotifier

# A firing alert expires there after this many missed repetitions: costprobe or its host is down.
LASTS_REPETITIONS = 4
# Alertmanager ignores an end in the future of its own clock and keeps the later end that it received
# before. Its clock may be behind ours by this time.
CLOCK_MARGIN_NS = 5 * NS_PER_S
MAX_LABEL_CHARS = 1000
_INVALID = re.compile(r"[^a-zA-Z0-9_]")


class AlertmanagerConfig(WithHeaders, WithToken, WithPassword, NotifierConfig):
    """A Prometheus Alertmanager; firing alerts are resent so that they do not expire there."""

    removed: ClassVar = {"generator_url": "the link of an alert is that of alerting.public_url"}

    kind: Literal["alertmanager"] = Field(
        description="Kind of notifier.", examples=["alertmanager"]
    )
    url: Annotated[str, IS_URL] = Field(
        description="URL of the Alertmanager, without /api.", examples=["http://127.0.0.1:9093"]
    )
    ca_file: CaFile = None
    resend_every_s: Duration = key(
        "resend_every",
        60.0,
        description=(
            "Interval at which a firing alert is resent; Alertmanager expires it after "
            "four times that."
        ),
    )

    @model_validator(mode="after")
    def _one_identity(self) -> AlertmanagerConfig:
        has_password = self.password is not None
        if has_password != (self.user is not None):
            raise ValueError("user and password go together; add what is missing")
        if has_password and self.token is not None:
            raise ValueError("give a password or a token, one of them")
        return self


class Alertmanager(HttpNotifier):
    """One Alertmanager.

    Args:
        config: Its section of the configuration.
    """

    alerts_per_send = 100

    def __init__(self, config: AlertmanagerConfig) -> None:
        super().__init__(config, config.sent_headers)
        self.resend_every_s = config.resend_every_s

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Send alerts in one request; see `Notifier.send`.

        A rejection of one alert does not affect the others, which Alertmanager has accepted.
        """
        lasts_ns = int(LASTS_REPETITIONS * self._config.resend_every_s * NS_PER_S)
        documents = [
            document for alert in alerts for document in to_documents(alert, time_ns, lasts_ns)
        ]
        if not documents:
            return
        user, password = self._config.user, self._config.password
        headers = bearer(self._config.token) if user is None else basic(user, password)
        response, destination = self._post(documents, headers, time_ns)
        content_type = response.headers.get("content-type", "")
        if "html" in content_type or response.body.lstrip().startswith(b"<"):
            # The login page of a proxy, with status 200, has accepted nothing.
            raise Misconfigured(
                destination.message("the response is not that of an Alertmanager: check url")
            )

    def _destination(self) -> Destination:
        return Destination.parse(f"{self._config.url.rstrip('/')}/api/v2/alerts")


def to_documents(alert: Alert, time_ns: int, lasts_ns: int) -> list[dict[str, Any]]:
    """Return the documents of an alert for the API.

    An alert is identified by its labels there, and the severity and the number of updates are among
    them: if one of them rose, the alert with the previous labels is ended first.

    Args:
        alert: The alert; a pending one has no document.
        time_ns: UTC in ns.
        lasts_ns: Time after which a firing alert expires there unless it is sent again, in ns.
    """
    if alert.state == "pending":
        return []
    starts_ns = alert.since_ns if alert.fired_ns is None else alert.fired_ns
    ended_ns = time_ns - CLOCK_MARGIN_NS
    if alert.state == "firing":
        ends_ns = time_ns + lasts_ns
    else:
        ends_ns = ended_ns if alert.ended_ns is None else min(alert.ended_ns, ended_ns)
    document = {
        "labels": labels_of(alert, alert.severity, alert.revision),
        "annotations": _annotations(alert),
        "startsAt": rfc3339(starts_ns),
        # An end before the start, as after a clock step, would be rejected.
        "endsAt": rfc3339(max(starts_ns, ends_ns)),
        **({"generatorURL": alert.link} if alert.link else {}),
    }
    severities = dict.fromkeys((alert.raised_from or alert.severity, alert.severity))
    revisions = dict.fromkeys((max(0, alert.revision - 1), alert.revision))
    ended = [
        {
            **document,
            "labels": labels_of(alert, severity, revision),
            "endsAt": rfc3339(max(starts_ns, min(ended_ns, ends_ns))),
        }
        for severity in severities
        for revision in revisions
        if (severity, revision) != (alert.severity, alert.revision)
    ]
    return [*ended, document]


def labels_of(alert: Alert, severity: str, revision: int) -> dict[str, str]:
    """Return the labels that identify an alert: names of letters, digits and _, no empty values."""
    labels: dict[str, str] = {}
    # An unchanged name has precedence over a name that becomes equal to it.
    for name, value in sorted(alert.labels.items(), key=lambda item: _valid(item[0]) != item[0]):
        labels.setdefault(_valid(name), shortened(value, MAX_LABEL_CHARS))
    labels |= {"alertname": shortened(alert.name, MAX_LABEL_CHARS), "severity": severity}
    if revision:
        labels["update"] = str(revision)
    return {name: value for name, value in labels.items() if value}


def _valid(name: str) -> str:
    valid = _INVALID.sub("_", name)
    return f"_{valid}" if not valid or valid[0].isdigit() else valid


def _annotations(alert: Alert) -> Mapping[str, str]:
    texts = {
        "summary": shortened(alert.summary),
        "description": "\n".join(explanation_lines(alert)) or shortened(alert.summary),
        "link": alert.link,
        "cause": shortened(alert.cause),
        "id": alert.id,
        "flapping": "flapping: further ends are not sent" * alert.is_flapping,
    }
    return {name: text for name, text in texts.items() if text}
