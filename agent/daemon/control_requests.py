"""What the daemon does when it is asked over the control socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from agent.alert import Silence
from agent.daemon.control import Handler

MAX_TEXT_CHARS = 500
MAX_PATTERNS = 20


class Alerting(Protocol):
    """What can be asked for."""

    def add_silence(self, silence: Silence) -> None:
        """Adds a silence.

        Raises:
            ValueError: It cannot be added.
        """
        ...

    def end_silence(self, silence_id: str) -> Silence:
        """Ends a silence.

        Raises:
            KeyError: There is none of that id.
        """
        ...

    def silences(self) -> Sequence[Silence]:
        """The silences that hold or will."""
        ...

    def send_test(self, notifier: str | None) -> Mapping[str, str]:
        """Tells a test through a notifier, or all; "" or what went wrong for each.

        Raises:
            KeyError: There is none of that name.
        """
        ...


def handlers(alerting: Alerting) -> dict[str, Handler]:
    """The requests, by name."""

    def silence(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        added = silence_of(request)
        alerting.add_silence(added)
        return silence_document(added)

    def unsilence(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        wanted = str(request.get("id"))
        try:
            return silence_document(alerting.end_silence(wanted))
        except KeyError:
            raise ValueError(f"there is no silence {wanted}") from None

    def silences(_: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return [silence_document(found) for found in alerting.silences()]

    def test(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        notifier = request.get("notifier")
        try:
            return dict(alerting.send_test(None if notifier is None else str(notifier)))
        except KeyError:
            raise ValueError(f"there is no notifier {notifier}") from None

    return {"silence": silence, "unsilence": unsilence, "silences": silences, "test": test}


def silence_of(request: Mapping[str, Any]) -> Silence:
    """The silence that a request asks for.

    Raises:
        ValueError: A part is missing, too long, or of the wrong kind.
    """
    match = request.get("match")
    if not isinstance(match, dict) or not match or len(match) > MAX_PATTERNS:
        raise ValueError(f"a silence matches 1 to {MAX_PATTERNS} labels")
    times = [request.get(name) for name in ("starts_ns", "ends_ns")]
    if not all(isinstance(time_ns, int) for time_ns in times):
        raise ValueError("a silence has a beginning and an end")
    texts = [str(request.get(name, "")) for name in ("id", "comment", "author")]
    patterns = {str(name): str(pattern) for name, pattern in match.items()}
    if any(len(text) > MAX_TEXT_CHARS for text in [*texts, *patterns, *patterns.values()]):
        raise ValueError(f"a text of a silence has at most {MAX_TEXT_CHARS} characters")
    if not texts[0] or not texts[1].strip():
        raise ValueError("a silence has an id and a comment")
    starts_ns, ends_ns = (int(time_ns or 0) for time_ns in times)
    return Silence(texts[0], patterns, starts_ns, ends_ns, texts[1], texts[2])


def silence_document(silence: Silence) -> dict[str, Any]:
    """A silence as JSON."""
    return {**asdict(silence), "match": dict(silence.match)}
