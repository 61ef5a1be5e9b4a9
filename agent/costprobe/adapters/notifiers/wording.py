"""The text of an alert: title, lines and times, the same for all notifiers."""

from __future__ import annotations

from datetime import UTC, datetime

from costprobe.core.incident import Alert
from costprobe.core.printable import one_line
from costprobe.core.records import NS_PER_S

# An incident may group hundreds of series; a message lists at most this many.
MAX_SYMPTOMS = 50
MAX_LINE_CHARS = 1000
MAX_TITLE_CHARS = 200


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

    A single series whose text is the summary is omitted.
    """
    cause = alert.detail or (f"Cause: {alert.cause}" if alert.cause else "")
    symptoms = symptom_lines(alert)
    shown = [] if symptoms == [shortened(alert.summary)] else symptoms
    return [*([shortened(cause)] if cause else []), *(f"- {line}" for line in shown)]


def text_of(alert: Alert) -> str:
    """Return the whole message: the summary, causes and what to do, each series, a link."""
    labels = ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()) if value)
    times = [f"since {rfc3339(alert.since_ns)}"]
    if alert.ended_ns is not None:
        times.append(f"until {rfc3339(alert.ended_ns)}")
    lines = [shortened(alert.summary), *explanation_lines(alert)]
    if alert.link:
        lines.append(alert.link)
    if alert.is_flapping:
        lines.append("Flapping: further ends are not sent.")
    return "\n".join([*lines, "", shortened(labels), f"{' '.join(times)} · {alert.id}"])
