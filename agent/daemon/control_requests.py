"""What the daemon does when it is asked over the control socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from agent.alert import Silence
from agent.daemon.control import Handler
from agent.model import Point
from agent.series import make_point

MAX_TEXT_CHARS = 500
MAX_PATTERNS = 20
MAX_ROWS = 64


class Asked(Protocol):
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

    def retry_sink(self, sink: str | None) -> Sequence[str]:
        """Tries a sink again at once, or all; the names of those.

        Raises:
            KeyError: There is none of that name.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """What the daemon says of itself."""
        ...

    def keep(self, rows: Sequence[Point]) -> None:
        """Keeps rows that a command measured."""
        ...

    def store_path(self) -> Path:
        """The store that rows are kept in."""
        ...


def handlers(asked: Asked) -> dict[str, Handler]:
    """The requests, by name."""

    def silence(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        added = silence_of(request)
        asked.add_silence(added)
        return silence_document(added)

    def unsilence(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        wanted = str(request.get("id"))
        try:
            return silence_document(asked.end_silence(wanted))
        except KeyError:
            raise ValueError(f"there is no silence {wanted}") from None

    def silences(_: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return [silence_document(found) for found in asked.silences()]

    def test(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        notifier = request.get("notifier")
        try:
            return dict(asked.send_test(None if notifier is None else str(notifier)))
        except KeyError:
            raise ValueError(f"there is no notifier {notifier}") from None

    return {
        "silence": silence,
        "unsilence": unsilence,
        "silences": silences,
        "test": test,
        "status": lambda _: dict(asked.status()),
        **store_handlers(asked),
    }


def store_handlers(asked: Asked) -> dict[str, Handler]:
    """The requests that concern what is kept and where it is sent."""

    def retry(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        sink = request.get("sink")
        try:
            return list(asked.retry_sink(None if sink is None else str(sink)))
        except KeyError:
            raise ValueError(f"there is no sink {sink}") from None

    def keep(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        rows = rows_of(request)
        # Whoever asks may have found the daemon of another store.
        if str(request.get("store")) != str(asked.store_path().resolve()):
            return 0
        asked.keep(rows)
        return len(rows)

    return {"retry": retry, "keep": keep}


def rows_of(request: Mapping[str, Any]) -> list[Point]:
    """The rows of a sweep that a request brings; of other measurements the daemon is the one source.

    Raises:
        ValueError: They are none, too many, or not as the schema has them.
    """
    rows = request.get("rows")
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
        raise ValueError(f"a sweep has 1 to {MAX_ROWS} rows")
    try:
        return [_row_of(row) for row in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no row of a sweep: {error}") from error


def _row_of(row: Mapping[str, Any]) -> Point:
    if row["measurement"] != "sweep":
        raise ValueError(f"rows of {row['measurement']} are the daemon's own")
    tags = {str(name): str(value)[:MAX_TEXT_CHARS] for name, value in row["tags"].items()}
    return make_point("sweep", tags, row["fields"], int(row["time_ns"]))


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
