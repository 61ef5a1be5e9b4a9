"""Webhook: posts a versioned JSON document to a URL, signed if a key is configured."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from costprobe.adapters.http.errors import HttpResponse, Misconfigured, raise_for_status
from costprobe.core.config.fields import IS_URL
from costprobe.core.incident import Alert
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


class HttpNotifier(Notifier):
    """A notifier that posts to one URL.

    Args:
        config: Its section of the configuration, with `url`, `ca_file` and `timeout_s`.
        further_headers: Returns the headers that the section adds to each request.
    """

    def __init__(self, config: Any, further_headers: Callable[[], Mapping[str, str]]) -> None:  # noqa: ANN401 - the section of its kind
        self._config = config
        limits = ExchangeLimits(config.timeout_s, config.timeout_s)
        self._client = HttpClient(limits, ca_file=config.ca_file, further_headers=further_headers)

    @abstractmethod
    def _destination(self) -> Destination:
        """Return the URL; raises Misconfigured if it is not valid or cannot be read."""

    def problems(self) -> list[str]:
        """Return the problems that can be detected without sending."""
        problems = secret_problems(self._config)
        checks: list[Callable[[], object]] = [self._client.check_certificates]
        url = self._config.url
        # A secret that cannot be read is reported as a problem, or is available only to the service.
        if isinstance(url, str) or (url.is_readable and not problems):
            checks.append(self._destination)
        for check in checks:
            try:
                check()
            except Misconfigured as error:
                problems.append(error.reason)
        return problems

    def _post(
        self, document: object, headers: Mapping[str, str], time_ns: int
    ) -> tuple[HttpResponse, Destination]:
        """Post JSON; return the response of a server that accepted it, and its URL."""
        destination = self._destination()
        sent = {**headers, "Content-Type": "application/json"}
        response = self._client.request("POST", destination, sent, to_body(document))
        raise_for_status(
            response,
            now_s=time_ns / NS_PER_S,
            is_tls=destination.is_tls,
            name=destination.name,
        )
        return response, destination


def to_body(document: object) -> bytes:
    """Return a document as compact JSON."""
    return json.dumps(document, separators=(",", ":")).encode()


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


class Webhook(HttpNotifier):
    """One URL.

    Args:
        config: Its section of the configuration.
    """

    def __init__(self, config: WebhookConfig) -> None:
        super().__init__(config, lambda: config.headers)

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Send alerts in order, one request each; see `Notifier.send`."""
        for alert in alerts:
            if alert.state == "pending":
                continue
            document = to_document(alert, time_ns)
            headers = {**bearer(self._config.token), "Idempotency-Key": idempotency_key(alert)}
            if self._config.key is not None:
                key, body = self._config.key.read(), to_body(document)
                headers["X-Costprobe-Signature"] = signature(key, body, time_ns)
            self._post(document, headers, time_ns)

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


# Names of the document that differ from those of the alert.
_NAMES = {
    "raised_from": "severity_before",
    "since_ns": "since",
    "fired_ns": "fired_at",
    "ended_ns": "ended_at",
    "is_flapping": "flapping",
    "is_test": "test",
}


def to_document(alert: Alert, time_ns: int) -> dict[str, Any]:
    """Return the document of docs/json/webhook.schema.json."""
    document = _plain(alert.to_document())
    symptoms = document.pop("symptoms")
    del document["revision"]
    sent = {
        **document,
        "symptoms": [_plain(symptom) for symptom in symptoms[:MAX_SYMPTOMS]],
        "symptoms_left_out": max(0, len(symptoms) - MAX_SYMPTOMS),
    }
    return {"schema": SCHEMA, "sent_at": rfc3339(time_ns), "alert": sent}


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its instants as text, and without the infinities and NaN that JSON lacks."""
    plain = {}
    for name, value in record.items():
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        is_instant = name.endswith("_ns") and value is not None
        plain[_NAMES.get(name, name)] = (
            rfc3339(value) if is_instant else None if is_infinite else value
        )
    return plain
