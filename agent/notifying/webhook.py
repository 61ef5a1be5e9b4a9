"""Any HTTP address that takes JSON: a versioned document, signed where a key is given."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent import __version__
from agent.alert import Alert, Symptom
from agent.config_notifier import WebhookConfig
from agent.model import NS_PER_S
from agent.notifying.address import Address
from agent.notifying.http import Poster
from agent.notifying.secrets import Secret
from agent.notifying.sender import Misconfigured
from agent.notifying.wording import rfc3339

SCHEMA = "infercost.alert/1"
MAX_SYMPTOMS = 200


class Webhook:
    """One address.

    Args:
        config: How to reach it.
        credentials: Where systemd put this process's credentials; None where it gave none.
    """

    def __init__(self, config: WebhookConfig, credentials: Path | None) -> None:
        self._config = config
        self._url = Secret("address", config.url_file, config.url_credential, credentials)
        self._key = Secret("key", config.key_file, config.key_credential, credentials)
        self._token = Secret("token", config.token_file, config.token_credential, credentials)
        self._poster = Poster(config.ca_file, config.timeout_s)

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Tells of alerts, a request each, in order; those that are pending are left out.

        Args:
            alerts: In the order in which they happened.
            time_ns: UTC in ns of now.

        Raises:
            RetryLater: The other side is away or busy; those before may have been taken.
            Refused: It will never take one of them.
            Misconfigured: Address, certificates or credentials are wrong.
        """
        for alert in alerts:
            if alert.state != "pending":
                self._post(alert, time_ns)

    def problems(self) -> list[str]:
        """What hinders sending, as far as can be told without sending."""
        secrets = (self._url, self._key, self._token)
        found = [problem for secret in secrets for problem in secret.problems()]
        found.extend(self._poster.problems())
        try:
            # One that cannot be read is among those found, or only the service gets it.
            if self._config.url is not None or (self._url.file is not None and not found):
                self._address()
        except Misconfigured as error:
            found.append(error.reason)
        return found

    def close(self) -> None:
        """Lets go of nothing: each request has a connection of its own."""

    def _post(self, alert: Alert, time_ns: int) -> None:
        body = json.dumps(to_document(alert, time_ns), separators=(",", ":")).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"infercost/{__version__}",
            "Idempotency-Key": idempotency_key(alert),
        }
        secrets = []
        if self._token.is_given:
            secrets.append(self._token.read_ascii())
            headers["Authorization"] = f"Bearer {secrets[0]}"
        if self._key.is_given:
            headers["X-Infercost-Signature"] = signature(self._key.read(), body, time_ns)
        self._poster.post(self._address(), headers, body, time_ns, secrets)

    def _address(self) -> Address:
        if self._config.url is not None:
            return Address.parse(self._config.url)
        return Address.parse(self._url.read(), self._url.where)


def signature(key: str, body: bytes, time_ns: int) -> str:
    """The value of X-Infercost-Signature: the time is signed too, so that none can be replayed.

    Args:
        key: The key that both sides know.
        body: Content as it is sent.
        time_ns: UTC in ns of now.
    """
    time_s = time_ns // NS_PER_S
    mac = hmac.new(key.encode(), f"{time_s}.".encode() + body, hashlib.sha256)
    return f"t={time_s},v1={mac.hexdigest()}"


def idempotency_key(alert: Alert) -> str:
    """The same for each attempt to tell the same."""
    return quote(f"{alert.id}:{alert.state}:{alert.severity}", safe=":-._")


def to_document(alert: Alert, time_ns: int) -> dict[str, Any]:
    """The document as docs/webhook.schema.json describes it."""
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
    """JSON has no infinities and no NaN."""
    return value if value is not None and math.isfinite(value) else None
