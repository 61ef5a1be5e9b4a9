"""Annotations by people and deploy pipelines: events that may explain a change of cost."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.store.ledger import Ledger
from costprobe.core.clock import NS_PER_MS, Clock
from costprobe.core.periods import parse_moment_ns
from costprobe.core.records import NS_PER_S, Event, natural
from costprobe.core.schema import event_point

logger = logging.getLogger(__name__)

MAX_TEXT_CHARS: Final = 500
MAX_NAME_CHARS: Final = 100
# The clock of a deploy pipeline may be ahead of this host's by so much.
AHEAD_NS: Final = 5 * NS_PER_S
SUBJECTS: Final = ("device", "probe", "service")
KEYS: Final = ("text", "at", *SUBJECTS, "author")


class Annotations:
    """Stores annotations as rows of `event`; thread-safe.

    Args:
        known: Names that can be annotated, for each of SUBJECTS.
        tags: Host and static labels, on every row.
        ledger: Stores the rows.
        clock: UTC.
        leave: Forgets the absent board of a UUID, which was removed for good, and returns its name;
            raises ValueError if there is none.
    """

    def __init__(
        self,
        known: Mapping[str, Collection[str]],
        tags: Mapping[str, str],
        ledger: Ledger,
        clock: Clock,
        leave: Callable[[str], str],
    ) -> None:
        self._known = known
        self._leave = leave
        self._ledger = ledger
        self._clock = clock
        self._tags = tags

    def add(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Store the annotation of a request; the same text and time again have no effect.

        Args:
            request: `text`, and optionally `at` (a duration before now or ISO 8601; now by
                default), `device`, `probe`, `service` and `author`. With `left` the device is the
                UUID of a board that is absent and was removed for good; `text` may be missing.

        Returns:
            The annotation as JSON; `time_ns` in UTC.

        Raises:
            ValueError: A key is unknown or its value is invalid; the message gives the valid form.
        """
        known, given = self._known, dict(request)
        if given.pop("left", False) is True:
            uuid = _name(request, "device")
            event = _annotation_event(
                {"text": f"{uuid} was removed", **given},
                self._clock.time_ns(),
                {**known, "device": [uuid]},
            )
            name = self._leave(uuid)
            event = replace(event, device=name, subject={**event.subject, "device": name})
        else:
            event = _annotation_event(given, self._clock.time_ns(), known)
        logger.info("annotation %s: %s", event.detail or "by unknown", event.title)
        self._ledger.append([event_point(event, self._tags)])
        return {
            "time_ns": event.time_ns,
            "text": event.title,
            **{name: _name(request, name) or None for name in (*SUBJECTS, "author")},
        }


def _annotation_event(
    request: Mapping[str, Any], now_ns: int, known: Mapping[str, Collection[str]]
) -> Event:
    """Return the event of an annotation.

    A row is identified by time and tags. The digits of its time below a millisecond are computed
    from the text, so that two texts at the same time are two rows, and a repeated one is the same.

    Args:
        request: As in `Annotations.add`.
        now_ns: Present UTC in ns.
        known: Names that exist, for each of SUBJECTS.

    Raises:
        ValueError: As in `Annotations.add`.
    """
    unknown = sorted(set(request) - set(KEYS))
    if unknown:
        raise ValueError(
            f"{outside_text(unknown[0], 40)!r}: no such key; there are: {', '.join(KEYS)}"
        )
    text = _text(request, "text", MAX_TEXT_CHARS)
    if not text:
        raise ValueError('text: is empty; write what changed, such as "deployed v42"')
    author = _text(request, "author", MAX_NAME_CHARS)
    names = {subject: _name(request, subject) for subject in SUBJECTS}
    for subject, name in names.items():
        if name and name not in known[subject]:
            there_are = ", ".join(sorted(known[subject], key=natural)) or "none"
            raise ValueError(f"{subject}: there is no {subject} {name!r}; there are: {there_are}")
    time_ns = _time_ns(request, now_ns) // NS_PER_MS * NS_PER_MS
    return Event(
        kind="annotation",
        severity="info",
        title=text,
        time_ns=time_ns + zlib.crc32(text.encode()) % NS_PER_MS,
        detail=f"by {author}" if author else "",
        device=names["device"],
        subject=names,
    )


def _text(request: Mapping[str, Any], key: str, chars_max: int) -> str:
    """Return a text as one printable line; empty if it is absent."""
    value = request.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > chars_max:
        raise ValueError(f"{key}: is not a text of at most {chars_max} characters")
    return outside_text(value).strip()


def _name(request: Mapping[str, Any], key: str) -> str:
    return _text(request, key, MAX_NAME_CHARS)


def _time_ns(request: Mapping[str, Any], now_ns: int) -> int:
    at = _text(request, "at", MAX_NAME_CHARS)
    if not at:
        return now_ns
    try:
        time_ns = parse_moment_ns(at, now_ns)
    except ValueError as error:
        raise ValueError(f"at: {error}") from error
    if time_ns > now_ns + AHEAD_NS:
        raise ValueError("at: is in the future; give the time at which it happened")
    return min(time_ns, now_ns)
