"""The requests of the control socket, each validated before it is passed to a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from costprobe.app.delivery.notifying import Notifying
from costprobe.app.watching.watching import Watching
from costprobe.core.incident import Silence, silence_document
from costprobe.core.printable import one_line
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import LOAD_CURVE, make_point
from costprobe.daemon.control.server import Handler
from costprobe.daemon.runtime import Runtime

MAX_TEXT_CHARS = 500
MAX_PATTERNS = 20
MAX_ROWS = 64
# Measurements whose rows commands may add; all others are written by the daemon only.
KEPT = frozenset({"sweep", "cold_start", "calibration"})
# The only event among them: a change of a load curve.
KEPT_EVENT = {"kind": "drift", "metric": LOAD_CURVE}
# 2100-01-01, the last instant that dates of the command line can name.
LATEST_NS = 4_102_444_800 * NS_PER_S
_Parts = TypeVar("_Parts")


class AlertingParts(Protocol):
    """The parts that silences, incidents and test alerts concern."""

    @property
    def watching(self) -> Watching:
        """The rules, incidents and silences."""
        ...

    @property
    def notifying(self) -> Notifying:
        """The notifiers."""
        ...

    @property
    def store_path(self) -> Path:
        """Path of the store."""
        ...


class AlertingRequests:
    """The requests about incidents, silences and notifiers.

    Args:
        alerting: Returns the parts in force; None while the process starts or stops.
    """

    def __init__(self, alerting: Callable[[], AlertingParts | None]) -> None:
        self._alerting = alerting

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each request, by name."""
        return {
            "silence": self._silence,
            "unsilence": self._unsilence,
            "silences": self._silences,
            "test": self._test,
            "alerts": self._alerts,
        }

    def _silence(self, request: Mapping[str, Any]) -> dict[str, Any]:
        added = silence_of(request)
        _present(self._alerting()).watching.add_silence(added)
        return silence_document(added)

    def _unsilence(self, request: Mapping[str, Any]) -> dict[str, Any]:
        silence_id = str(request.get("id"))
        watching = _present(self._alerting()).watching
        try:
            return silence_document(watching.end_silence(silence_id))
        except KeyError:
            raise ValueError(f"there is no silence {silence_id}") from None

    def _silences(self, _: Mapping[str, Any]) -> list[dict[str, Any]]:
        watching = _present(self._alerting()).watching
        return [silence_document(silence) for silence in watching.silences()]

    def _test(self, request: Mapping[str, Any]) -> dict[str, str]:
        notifier = _name(request, "notifier")
        notifying = _present(self._alerting()).notifying
        try:
            return dict(notifying.send_test(notifier))
        except KeyError:
            raise ValueError(f"there is no notifier {notifier}") from None

    def _alerts(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the incidents; None to a client that asks for another store's."""
        parts = _present(self._alerting())
        return dict(parts.watching.alerts()) if _is_about(request, parts.store_path) else None


class ControlRequests(AlertingRequests):
    """The requests, and the parts of the configuration in force that handle them.

    Args:
        running: Returns the parts in force; None while the daemon starts or stops.
        status: Returns the status document, also while the store cannot be written.
    """

    def __init__(
        self, running: Callable[[], Runtime | None], status: Callable[[], Mapping[str, Any]]
    ) -> None:
        super().__init__(running)
        self._running = running
        self._status = status

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each request, by name."""
        return {
            **super().handlers(),
            "annotate": self._annotate,
            "retry": self._retry,
            "keep": self._keep,
            "status": lambda _: self._status_and_alerts(),
        }

    def _parts(self) -> Runtime:
        return _present(self._running())

    def _annotate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        annotation = {key: value for key, value in request.items() if key != "do"}
        return self._parts().annotations.add(annotation)

    def _retry(self, request: Mapping[str, Any]) -> list[str]:
        sink = _name(request, "sink")
        delivery = self._parts().delivery
        try:
            return list(delivery.retry(sink))
        except KeyError:
            raise ValueError(f"there is no sink {sink}") from None

    def _status_and_alerts(self) -> dict[str, Any]:
        runtime = self._running()
        alerts = runtime.watching.alerts()["alerts"] if runtime is not None else []
        return {**self._status(), "alerts": alerts}

    def _keep(self, request: Mapping[str, Any]) -> int:
        rows = measured_rows(request)
        parts = self._parts()
        if not _is_about(request, parts.store_path):
            return 0
        parts.ledger.append(rows)
        return len(rows)


def _present(parts: _Parts | None) -> _Parts:
    if parts is None:
        raise ValueError("the daemon is starting or stopping; retry in a few seconds")
    return parts


def measured_rows(request: Mapping[str, Any]) -> list[Point]:
    """Return the rows in a request that a command measured; see KEPT.

    Raises:
        ValueError: There are none or too many, or one does not conform to the schema.
    """
    rows = request.get("rows")
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
        raise ValueError(f"a measurement has 1 to {MAX_ROWS} rows")
    try:
        return [_measured_row(row) for row in rows]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a row of a measurement: {error}") from error


def silence_of(request: Mapping[str, Any]) -> Silence:
    """Return the silence of a request.

    Raises:
        ValueError: A part is missing, too long, or of the wrong type.
    """
    match = request.get("match")
    if not isinstance(match, dict) or not match or len(match) > MAX_PATTERNS:
        raise ValueError(f"a silence matches 1 to {MAX_PATTERNS} labels")
    times = [request.get(name) for name in ("starts_ns", "ends_ns")]
    if not all(isinstance(time_ns, int) for time_ns in times):
        raise ValueError("a silence has a start and an end")
    texts = [one_line(str(request.get(name, ""))) for name in ("id", "comment", "author")]
    patterns = {str(name): str(pattern) for name, pattern in match.items()}
    if any(len(text) > MAX_TEXT_CHARS for text in [*texts, *patterns, *patterns.values()]):
        raise ValueError(f"a text of a silence has at most {MAX_TEXT_CHARS} characters")
    if not texts[0] or not texts[1].strip():
        raise ValueError("a silence has an id and a comment")
    starts_ns, ends_ns = (int(time_ns or 0) for time_ns in times)
    if not 0 <= starts_ns <= ends_ns <= LATEST_NS:
        raise ValueError("a silence must end after its start, between 1970 and 2100")
    return Silence(texts[0], patterns, starts_ns, ends_ns, texts[1], texts[2])


def _measured_row(row: Mapping[str, Any]) -> Point:
    measurement = str(row["measurement"])
    tags = {str(name): str(value)[:MAX_TEXT_CHARS] for name, value in row["tags"].items()}
    is_change = measurement == "event" and KEPT_EVENT.items() <= tags.items()
    if measurement not in KEPT and not is_change:
        raise ValueError(f"rows of {measurement} are written by the daemon only")
    time_ns = int(row["time_ns"])
    if not 0 <= time_ns <= LATEST_NS:
        raise ValueError("a row is of a time between 1970 and 2100")
    return make_point(measurement, tags, row["fields"], time_ns)


def _is_about(request: Mapping[str, Any], store: Path) -> bool:
    """Return whether a request is for this store: a client may reach the daemon of another one."""
    return str(request.get("store")) == str(store.resolve())


def _name(request: Mapping[str, Any], key: str) -> str | None:
    value = request.get(key)
    return None if value is None else str(value)
