"""The contracts of a sink and of a notifier, their shared configuration keys, and an alert's text.

docs/contributing/kinds.md describes how to add one. The text of an alert (title,
lines and times) is the same for all notifiers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from pydantic import Field

from costprobe.adapters.http.access import CaFile, WithHeaders
from costprobe.core.config.fields import (
    IS_BARE_URL,
    Duration,
    Match,
    Name,
    Section,
    key,
    url_matching,
)
from costprobe.core.incident import Alert
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S, Severity

# An incident may group hundreds of series; a message lists at most this many.
MAX_SYMPTOMS = 50
MAX_LINE_CHARS = 1000
MAX_TITLE_CHARS = 200


class SinkConfig(Section):
    """One database to which the series are pushed."""

    removed: ClassVar = {
        "backlog": "a backlog is sent in order, beside live data",
        "batch_points": "a request holds at most 5,000 points",
        "from_beginning": "a new sink receives everything that the store holds",
        "max_backlog_points": "a backlog is kept for store.outbox_retention",
    }

    name: Name = Field(
        "influxdb",
        description="Name of the sink in commands, faults and alerts.",
        examples=["influxdb"],
    )
    api: str = Field(
        description="Kind of sink.",
        examples=["v2"],
    )
    drain_points_per_s: int = Field(
        100_000,
        ge=10,
        le=10_000_000,
        description="Most points a second of a backlog sent alongside live data.",
    )
    flush_every_s: Duration = key(
        "flush_every", 10.0, description="Time between two requests while there is no backlog."
    )


class HttpSinkConfig(WithHeaders, SinkConfig):
    """One database to which the series are pushed over HTTP."""

    # Without a query, which may contain a key that messages would show.
    url: Annotated[str, IS_BARE_URL] = Field(
        description="Address of the server, without user and query.",
        examples=["http://127.0.0.1:8086"],
    )
    ca_file: CaFile = None
    proxy: (
        Annotated[
            str,
            url_matching(
                r"https?://[^/@\s]+/?", "an http:// or https:// URL without user and path"
            ),
        ]
        | None
    ) = Field(
        None,
        description="URL of an HTTP proxy; those of the environment are not used.",
        examples=["http://proxy.example.com:3128"],
    )
    timeout_s: Duration = key("timeout", 10.0, description="Timeout of each step of a request.")


class Sink(ABC):
    """A destination of the series; constructed with its section of the configuration and a clock.

    `encode` and `post` are called by up to three threads at a time. The constructor does not connect:
    the first `post` does, and the first one after a failure. A sink neither buffers nor retries: the
    delivery worker posts the same points again after an error.
    """

    @abstractmethod
    def encode(self, points: bytes) -> bytes:
        """Return the body of a request.

        Args:
            points: Line protocol in UTF-8, one point a line, times in ns.
        """

    @abstractmethod
    def post(self, body: bytes) -> None:
        """Send what `encode` returned; return once it is acknowledged.

        Raises:
            RetryLater: The same body may be accepted later.
            Rejected: A part of it, or its size, will never be accepted.
            Misconfigured: Only an operator can fix it.
        """

    def check(self) -> str:
        """Test the destination without storing a point; return the result as text.

        Raises:
            RetryLater, Rejected, Misconfigured: As `post` does.
        """
        return "no check for this kind of sink"

    def close(self) -> None:  # noqa: B027 - a sink without a connection has nothing to close
        """Close the connection, if there is one. May be called twice."""


class NotifierConfig(Section):
    """Options of all notifiers: which alerts they receive, and how often."""

    removed: ClassVar = {
        "keep": "a message is retried for a day",
        "rate_per_minute": "at most 30 messages a minute are sent on average",
    }

    name: Name = Field(
        description="Name of the notifier in rules and commands.", examples=["pager"]
    )
    kind: str = Field(
        description="Kind of notifier; each kind narrows it to its own name.", examples=["webhook"]
    )
    match: Match = Field(
        default_factory=dict,
        description="Incidents that it receives: a pattern for each label.",
        examples=[{"severity": "critical"}],
    )
    min_severity: Severity = Field("info", description="Lowest severity that it receives.")
    send_resolved: bool = Field(
        True, description="Whether it is notified when an incident is resolved."
    )
    repeat_s: Duration | None = key(
        "repeat",
        None,
        description="Interval at which a firing incident is sent again; by default never.",
        examples=["4h"],
    )
    timeout_s: Duration = key("timeout", 10.0, description="Timeout of one attempt.")


class Notifier(ABC):
    """One way to send alerts to people or to a paging service.

    It is constructed from its configuration section, without reading or connecting to anything. One
    thread at a time calls `send`; its worker retries, paces and records, so `send` is one attempt.

    Attributes:
        alerts_per_send: Maximum number of alerts of one `send`.
        resend_every_s: How often alerts that still fire are sent again, in s, for a receiver that
            expires them; None for never.
    """

    alerts_per_send: int = 1
    resend_every_s: float | None = None

    @abstractmethod
    def send(self, alerts: Sequence[Alert], time_ns: int) -> None:
        """Deliver alerts; return once the receiver has accepted all of them.

        It returns within the configured timeout. An alert may be sent twice, because a process can
        die between the delivery and its record: this must have no effect beyond a second message.
        Pending alerts are skipped.

        Args:
            alerts: Oldest first.
            time_ns: UTC in ns.

        Raises:
            RetryLater: The receiver is unreachable, overloaded or slow: retry later.
            Rejected: It will never accept this message.
            Misconfigured: URL or credentials are wrong: the message is kept for an operator.
        """

    def problems(self) -> list[str]:
        """Return the problems that can be detected without sending; without secrets."""
        return []

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections and end child processes; may be called twice, and while `send` runs."""


def rfc3339(time_ns: int) -> str:
    """Format a UTC time in ns as "2026-05-28T20:26:40.123456789Z"."""
    whole_s, rest_ns = divmod(time_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(whole_s, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def shortened(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return a text as one printable line of at most `max_chars`."""
    line = " ".join(one_line(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def title_of(alert: Alert) -> str:
    """Return the title: "[FIRING] drift warning"."""
    kind = "TEST" if alert.is_test else alert.state.upper()
    rise = f" (was {alert.raised_from})" if alert.raised_from else ""
    update = f" (update {alert.revision})" if alert.revision and alert.state == "firing" else ""
    return shortened(f"[{kind}] {alert.name} {alert.severity}{rise}{update}", MAX_TITLE_CHARS)


def symptom_lines(alert: Alert) -> list[str]:
    """Return one line per affected series: the oldest MAX_SYMPTOMS and the number of others."""
    lines = [shortened(symptom.text) for symptom in alert.symptoms[:MAX_SYMPTOMS]]
    left_out = len(alert.symptoms) - len(lines)
    return [*lines, f"and {left_out} more"] if left_out else lines


def explanation_lines(alert: Alert) -> list[str]:
    """Return what follows the summary: causes and what to do, then each series.

    A single series whose text is the summary is omitted, and a cause that only names the fault.
    """
    faults = {symptom.series.partition(" ")[0] for symptom in alert.symptoms}
    is_stated = bool(alert.cause) and alert.cause not in faults
    cause = alert.detail or (f"Cause: {alert.cause}" if is_stated else "")
    symptoms = symptom_lines(alert)
    shown = [] if symptoms == [shortened(alert.summary)] else symptoms
    return [*([shortened(cause)] if cause else []), *(f"- {line}" for line in shown)]


def _second(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"


def text_of(alert: Alert) -> str:
    """Return the whole message: the summary, causes and what to do, each series, a link."""
    labels = ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()) if value)
    times = [f"since {_second(alert.since_ns)}"]
    if alert.ended_ns is not None:
        times.append(f"resolved {_second(alert.ended_ns)}")
    lines = [shortened(alert.summary), *explanation_lines(alert)]
    if alert.link:
        lines.append(alert.link)
    if alert.is_flapping:
        lines.append("Flapping: further ends are not sent.")
    return "\n".join([*lines, "", shortened(labels), f"{', '.join(times)} · {alert.id}"])
