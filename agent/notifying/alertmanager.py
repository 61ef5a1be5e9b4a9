"""A Prometheus Alertmanager: its API v2, told of alerts again and again so that none expires."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent import __version__
from agent.alert import Alert
from agent.config_notifier import AlertmanagerConfig
from agent.model import NS_PER_S
from agent.notifying.address import Address
from agent.notifying.http import Poster
from agent.notifying.secrets import Secret
from agent.notifying.sender import Misconfigured
from agent.notifying.wording import one_line, rfc3339, symptom_lines

# So many missed repetitions make a firing alert end there: infercost or its host is dead.
LASTS_REPETITIONS = 4
# An end that lies ahead of its clock is no end to it: the later end of what it was told before
# holds. So much may its clock be behind ours.
CLOCK_MARGIN_NS = 5 * NS_PER_S
MAX_LABEL_CHARS = 1000
_ODD = re.compile(r"[^a-zA-Z0-9_]")


class Alertmanager:
    """One Alertmanager.

    Args:
        config: How to reach it.
        credentials: Where systemd put this process's credentials; None where it gave none.
    """

    def __init__(self, config: AlertmanagerConfig, credentials: Path | None) -> None:
        self._config = config
        self._password = Secret(
            "password", config.password_file, config.password_credential, credentials
        )
        self._token = Secret("token", config.token_file, config.token_credential, credentials)
        self._poster = Poster(config.ca_file, config.timeout_s)

    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Tells of alerts in one request; those that are pending are left out.

        Args:
            alerts: In the order in which they happened.
            time_ns: UTC in ns of now.

        Raises:
            RetryLater: It is away or busy.
            Refused: It will never take one of them; the others it has taken.
            Misconfigured: Address, certificates or credentials are wrong.
        """
        lasts_ns = int(LASTS_REPETITIONS * self._config.resend_every_s * NS_PER_S)
        documents = [
            document for alert in alerts for document in to_documents(alert, time_ns, lasts_ns)
        ]
        if not documents:
            return
        if self._config.generator_url is not None:
            documents = [{**d, "generatorURL": self._config.generator_url} for d in documents]
        self.post(json.dumps(documents, separators=(",", ":")).encode(), time_ns)

    def post(self, body: bytes, time_ns: int) -> None:
        """Posts a list of alerts as JSON; raises as `send` does."""
        address = Address.parse(f"{self._config.url.rstrip('/')}/api/v2/alerts")
        headers = {"Content-Type": "application/json", "User-Agent": f"infercost/{__version__}"}
        authorization = self._authorization()
        secrets: tuple[str, ...] = ()
        if authorization is not None:
            headers["Authorization"] = authorization[0]
            secrets = authorization
        answer = self._poster.post(address, headers, body, time_ns, secrets)
        kind = answer.headers.get("content-type", "")
        if "html" in kind or answer.body.lstrip().startswith(b"<"):
            # A page that greets, of a proxy that asks to log in, has taken nothing.
            raise Misconfigured(f"{address.name}: that is no Alertmanager's answer: check url")

    def problems(self) -> list[str]:
        """What hinders sending, as far as can be told without sending."""
        config = self._config
        found = [
            *self._password.problems(),
            *self._token.problems(),
            *self._poster.problems(),
        ]
        try:
            Address.parse(config.url)
        except Misconfigured as error:
            found.append(error.reason)
        return found

    def close(self) -> None:
        """Lets go of nothing: each request has a connection of its own."""

    def _authorization(self) -> tuple[str, ...] | None:
        """The header, and after it all that no message may hold."""
        if self._token.is_given:
            token = self._token.read_ascii()
            return f"Bearer {token}", token
        if self._config.user is not None and self._password.is_given:
            password = self._password.read()
            # In UTF-8, as RFC 7617 has it.
            pair = base64.b64encode(f"{self._config.user}:{password}".encode()).decode()
            return f"Basic {pair}", pair, password
        return None


def to_documents(alert: Alert, time_ns: int, lasts_ns: int) -> list[dict[str, Any]]:
    """An alert as the API takes it; before one that has risen, the end of what it was.

    The severity is one of the labels, and labels are an alert's identity there.

    Args:
        alert: The alert.
        time_ns: UTC in ns of now.
        lasts_ns: How long a firing alert lasts there unless it is told again, in ns.
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
        "labels": labels_of(alert, alert.severity),
        "annotations": _annotations(alert),
        "startsAt": rfc3339(starts_ns),
        # An end before the start, as of a clock that was set back, would be refused.
        "endsAt": rfc3339(max(starts_ns, ends_ns)),
    }
    if alert.raised_from is None or alert.raised_from == alert.severity:
        return [document]
    ended = {
        "labels": labels_of(alert, alert.raised_from),
        "endsAt": rfc3339(max(starts_ns, min(ended_ns, ends_ns))),
    }
    return [{**document, **ended}, document]


def labels_of(alert: Alert, severity: str) -> dict[str, str]:
    """An alert's identity there: names of letters, digits and _, no empty values."""
    labels: dict[str, str] = {}
    # A name that is fit as it is goes before one that becomes the same.
    for name, value in sorted(alert.labels.items(), key=lambda item: _fit(item[0]) != item[0]):
        labels.setdefault(_fit(name), one_line(value, MAX_LABEL_CHARS))
    labels |= {"alertname": one_line(alert.name, MAX_LABEL_CHARS), "severity": severity}
    return {name: value for name, value in labels.items() if value}


def _fit(name: str) -> str:
    fit = _ODD.sub("_", name)
    return f"_{fit}" if not fit or fit[0].isdigit() else fit


def _annotations(alert: Alert) -> Mapping[str, str]:
    texts = {
        "summary": one_line(alert.summary),
        "description": "\n".join(symptom_lines(alert)),
        "cause": one_line(alert.cause),
        "id": alert.id,
        "flapping": "it comes and goes; its ends are not told any more" * alert.is_flapping,
    }
    return {name: text for name, text in texts.items() if text}
