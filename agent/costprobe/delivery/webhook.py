"""Webhook: posts a versioned JSON document to a URL, signed if a key is configured."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from costprobe.adapters.http.access import (
    CaFile,
    Destination,
    ExchangeLimits,
    Headers,
    Key,
    SecretUrl,
    WithToken,
    bearer,
    check_header_names,
    is_secret_place,
    one_form,
    secret_problems,
)
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import Misconfigured, raise_for_status
from costprobe.core.config.fields import IS_URL
from costprobe.core.incident import Alert, Symptom
from costprobe.core.records import NS_PER_S
from costprobe.delivery.apprise import CHATS
from costprobe.delivery.contract import Notifier, NotifierConfig, rfc3339

SCHEMA = "costprobe.alert/1"
MAX_SYMPTOMS = 200


# Services that accept only a document of their own.
_CHAT_HOSTS = {
    "hooks.slack.com": "slack",
    "webhook.office.com": "teams",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "events.pagerduty.com": "pagerduty",
}


def _not_of_a_chat(url: str) -> str:
    host = (urlsplit(url).hostname or "").lower()
    for suffix, kind in _CHAT_HOSTS.items():
        if f".{host}".endswith(f".{suffix}"):
            raise ValueError(
                f'{suffix} does not accept this JSON; write kind = "{kind}" and url ='
                f' "file:/etc/costprobe/{kind}.url", a file with {CHATS[kind]}'
            )
    return url


_Url = Annotated[
    Annotated[str, IS_URL, AfterValidator(_not_of_a_chat), Tag("[shown]")]
    | Annotated[SecretUrl, Tag("[secret]")],
    Discriminator(lambda value: "[secret]" if is_secret_place(value) else "[shown]"),
]


class WebhookConfig(WithToken, NotifierConfig):
    """Any URL that accepts JSON; signed with HMAC-SHA256 if a key is given."""

    removed: ClassVar = one_form("url", "key")

    kind: Literal["webhook"] = Field(description="Kind of notifier.", examples=["webhook"])
    url: _Url = Field(
        description="URL, or the location of one that is a secret.",
        examples=["https://hooks.example.com/costprobe", "file:/etc/costprobe/webhook.url"],
    )
    key: Key | None = Field(
        None,
        description="Location of the key that signs messages.",
        examples=["file:/etc/costprobe/webhook.key"],
    )
    ca_file: CaFile = None
    headers: Headers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _headers_are_further_ones(self) -> WebhookConfig:
        check_header_names({name.lower(): f"headers.{name}" for name in self.headers})
        return self


class Webhook(Notifier):
    """One URL.

    Args:
        config: Its section of the configuration.
    """

    def __init__(self, config: WebhookConfig) -> None:
        self._config = config
        limits = ExchangeLimits(config.timeout_s, config.timeout_s)
        self._client = HttpClient(
            limits, ca_file=config.ca_file, further_headers=lambda: config.headers
        )

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Send alerts in order, one request each; see `Notifier.send`."""
        for alert in alerts:
            if alert.state != "pending":
                self._post(alert, time_ns)

    def problems(self) -> list[str]:
        """Return the problems that can be detected without sending."""
        problems = secret_problems(self._config)
        url = self._config.url
        try:
            self._client.check_certificates()
            # A secret that cannot be read is reported as a problem, or is available only to the service.
            if isinstance(url, str) or (url.is_readable and not problems):
                self._destination()
        except Misconfigured as error:
            problems.append(error.reason)
        return problems

    def _post(self, alert: Alert, time_ns: int) -> None:
        body = json.dumps(to_document(alert, time_ns), separators=(",", ":")).encode()
        headers = bearer(self._config.token) | {
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key(alert),
        }
        if self._config.key is not None:
            headers["X-Costprobe-Signature"] = signature(self._config.key.read(), body, time_ns)
        destination = self._destination()
        response = self._client.request("POST", destination, headers, body)
        raise_for_status(
            response,
            now_s=time_ns / NS_PER_S,
            is_tls=destination.is_tls,
            name=destination.name,
        )

    def _destination(self) -> Destination:
        url = self._config.url
        if isinstance(url, str):
            return Destination.parse(url)
        destination = Destination.parse(url.read(), url.where)
        try:
            _not_of_a_chat(destination.url)
        except ValueError as error:
            raise Misconfigured(f"{url.where}: {error}") from None
        return destination


def signature(key: str, body: bytes, time_ns: int) -> str:
    """Return the value of X-Costprobe-Signature; it includes the time, which prevents replays.

    Args:
        key: The shared key.
        body: Content as it is sent.
        time_ns: UTC in ns.
    """
    time_s = time_ns // NS_PER_S
    mac = hmac.new(key.encode(), f"{time_s}.".encode() + body, hashlib.sha256)
    return f"t={time_s},v1={mac.hexdigest()}"


def idempotency_key(alert: Alert) -> str:
    """Return a key that is the same for each attempt to deliver the same state of an alert."""
    update = f":{alert.revision}" if alert.revision else ""
    return quote(f"{alert.id}:{alert.state}:{alert.severity}{update}", safe=":-._")


def to_document(alert: Alert, time_ns: int) -> dict[str, Any]:
    """Return the document of docs/webhook.schema.json."""
    return {
        "schema": SCHEMA,
        "sent_at": rfc3339(time_ns),
        "alert": {
            "id": alert.id,
            "name": alert.name,
            "state": alert.state,
            "severity": alert.severity,
            "severity_before": alert.raised_from,
            "labels": dict(alert.labels),
            "summary": alert.summary,
            "detail": alert.detail,
            "link": alert.link,
            "cause": alert.cause,
            "since": rfc3339(alert.since_ns),
            "fired_at": _time(alert.fired_ns),
            "ended_at": _time(alert.ended_ns),
            "symptoms": [_symptom(symptom) for symptom in alert.symptoms[:MAX_SYMPTOMS]],
            "symptoms_left_out": max(0, len(alert.symptoms) - MAX_SYMPTOMS),
            "flapping": alert.is_flapping,
            "test": alert.is_test,
        },
    }


def _symptom(symptom: Symptom) -> dict[str, Any]:
    return {
        "rule": symptom.rule,
        "series": symptom.series,
        "text": symptom.text,
        "detail": symptom.detail,
        "since": rfc3339(symptom.since_ns),
        "value": _number(symptom.value),
        "threshold": _number(symptom.threshold),
        "cause": symptom.cause,
        "severity": symptom.severity,
        "labels": dict(symptom.labels),
    }


def _time(time_ns: int | None) -> str | None:
    return None if time_ns is None else rfc3339(time_ns)


def _number(value: float | None) -> float | None:
    """Return a number that JSON can represent; None for infinities and NaN."""
    return value if value is not None and math.isfinite(value) else None
