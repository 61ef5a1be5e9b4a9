"""The ledger, through which all rows and small documents are stored.

The operator's labels of probes and services become tags of their rows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.rows import StoredRow, rendered, state_text
from costprobe.adapters.store.write import Store
from costprobe.core.outside import SHAPE_ERRORS
from costprobe.core.records import Point

# More than the containers of a node.
MAX_ADDED: Final = 1024


class Labelled(Protocol):
    """A section of the configuration with a name and tags of its rows."""

    @property
    def name(self) -> str:
        """Value of the tag of its rows."""
        ...

    @property
    def row_tags(self) -> Mapping[str, str]:
        """Further tags of its rows."""
        ...


class RowLabels:
    """Adds labels to rows; the label of a probe or service replaces that of the host.

    Args:
        probes: The configured probes.
        services: The configured services.
    """

    def __init__(self, probes: Iterable[Labelled] = (), services: Iterable[Labelled] = ()) -> None:
        self._labels = {
            (tag, section.name): section.row_tags
            for tag, sections in (("probe", probes), ("service", services))
            for section in sections
            if section.row_tags
        }

        self._added: dict[str, Mapping[str, str]] = {}

    def add_service(self, name: str, labels: Mapping[str, str]) -> None:
        """Add the labels of a service that is not configured; the oldest of many are dropped."""
        self._added.pop(name, None)
        self._added[name] = labels
        for oldest in list(self._added)[:-MAX_ADDED]:
            del self._added[oldest]

    def of(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of the probe or service that tags belong to."""
        found: dict[str, str] = {}
        for tag in ("probe", "service"):
            found |= self._labels.get((tag, tags.get(tag, "")), {})
        found |= self._added.get(tags.get("service", ""), {})
        return found

    def added_to(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return rows with the labels of the probe or service that they belong to."""
        if not self._labels and not self._added:
            return points
        return [self._with_labels(point) for point in points]

    def _with_labels(self, point: Point) -> Point:
        tags = {**point.tags, **self.of(point.tags)}
        return replace(point, tags=tags) if tags != point.tags else point


logger = logging.getLogger(__name__)

# A device row takes about 0.5 KB: 10,000 are three and a half hours of eight GPUs.
CAPACITY_POINTS = 10_000
_ROWS_PER_WRITE = 1000

T = TypeVar("T")

# Receives the points of one append after they were stored; returns the points derived from them.
Observer = Callable[[Sequence[Point]], Sequence[Point]]


class Ledger(Protocol):
    """Stores rows and small documents: in the store, or in memory for a single probe run."""

    def append(self, points: Iterable[Point], states: Mapping[str, Any] | None = None) -> None:
        """Store rows, and documents by name, committed together."""
        ...

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """Return a named document; None if there is none."""
        ...

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Store a named document."""
        ...


def restored(ledger: Ledger, name: str, parse: Callable[[Any], T]) -> T | None:
    """Return the content of a stored document; None if there is none, or it has another shape.

    Args:
        ledger: Where it is stored.
        name: Its name.
        parse: Reads it; may raise one of SHAPE_ERRORS, which is logged.
    """
    document = ledger.state(name)
    if document is None:
        return None
    try:
        return parse(document)
    except SHAPE_ERRORS as error:
        logger.warning("the stored %s is damaged and was discarded: %r", name, error)
        return None


class MemoryLedger:
    """A ledger in memory, for a single probe run and for tests."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._states: dict[str, Any] = {}

    def append(self, points: Iterable[Point], states: Mapping[str, Any] | None = None) -> None:
        """Keep rows and documents until the process ends."""
        self.points.extend(points)
        self._states.update(states or {})

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """Return a named document; None if there is none."""
        return self._states.get(name)

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keep a named document until the process ends."""
        self._states[name] = document


class StoreLedger:
    """Rows and documents in the store; both are queued in memory while the store rejects writes.

    A full, locked or read-only disk does not stop measuring. Queued rows and documents are retried,
    oldest first, by every append and flush; beyond the capacity the oldest rows are dropped and counted.
    Methods are thread-safe.

    Args:
        store: The store that this process writes.
        capacity_points: Maximum number of points in memory.
    """

    def __init__(self, store: Store, capacity_points: int = CAPACITY_POINTS) -> None:
        self._store = store
        self._capacity_points = capacity_points
        self._rows: deque[StoredRow] = deque()
        self._unsaved: dict[str, str] = {}
        self._waiting_lock = Lock()
        self._dropped_points = 0
        self._dropped_recorded = 0
        self._fault: str | None = None
        self._observer: Observer | None = None
        self._labels = RowLabels()
        self._documents: dict[str, Any] = {}
        self._documents_lock = Lock()

    @property
    def fault(self) -> str | None:
        """Reason why points are queued, with the fix; None while none are queued."""
        return self._fault

    @property
    def waiting_points(self) -> int:
        """Number of points in memory."""
        return len(self._rows)

    @property
    def unstored_points(self) -> int:
        """Number of points that the store does not have and has not counted as dropped."""
        return len(self._rows) + self._dropped_points - self._dropped_recorded

    @property
    def dropped_points(self) -> int:
        """Points dropped at the capacity since this process started."""
        return self._dropped_points

    def observe(self, observer: Observer | None) -> None:
        """Set the observer, which receives every point after it was stored; None for none.

        An observer's error is logged and never stops measuring.
        """
        self._observer = observer

    def label_with(self, labels: RowLabels) -> None:
        """Set the labels that are added to rows from now on."""
        self._labels = labels

    def append(self, points: Iterable[Point], states: Mapping[str, Any] | None = None) -> None:
        """Store points and documents, or queue them in memory until the store accepts them.

        Args:
            points: Rows.
            states: Documents by name. A crash leaves both or neither.

        Raises:
            ValueError: A point without a measurement or with a time beyond 64 bits, or a document with
                NaN or an infinity.
            TypeError: A document is not a JSON value.
        """
        rows = self._labels.added_to(tuple(points))
        self._write(rendered(rows), states or {})
        if self._observer is None:
            return
        try:
            derived = self._observer(rows)
        except Exception:
            logger.exception("detection failed on new rows")
            return
        if derived:
            self._write(rendered(self._labels.added_to(derived)), {})

    def flush(self) -> bool:
        """Retry the queued points; return True if none is left."""
        self._write((), {})
        return not self._rows

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """Return a named document; None if there is none."""
        with self._documents_lock:
            if name not in self._documents:
                self._documents[name] = self._store.state(name)
            return self._documents[name]

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Store a named document; if it cannot be written now, the next call retries it."""
        self._write((), {name: document})

    def rename_devices(self, rename: Callable[[str], str], states: Mapping[str, Any]) -> None:
        """Give all stored rows of devices that have other names now these names.

        Args:
            rename: Returns the present name of a device.
            states: Documents by name, committed with it.

        Raises:
            StoreError: Nothing was stored.
        """
        texts = {name: state_text(document) for name, document in states.items()}
        with self._waiting_lock:
            self._write_waiting()
            self._store.write((), texts, rename=rename)
        with self._documents_lock:
            self._documents.update(states)

    def _write(self, rows: Sequence[StoredRow], states: Mapping[str, Any]) -> None:
        texts = {name: state_text(document) for name, document in states.items()}
        with self._documents_lock:
            self._documents.update(states)
        with self._waiting_lock:
            before = self._fault
            self._rows.extend(rows)
            self._unsaved.update(texts)
            self._write_waiting()
            while len(self._rows) > self._capacity_points:
                self._rows.popleft()
                self._dropped_points += 1
            after = self._fault
        if after != before:
            if after is None:
                logger.info("the store accepts rows again")
            else:
                logger.error("%s; rows are queued in memory", after)

    def _write_waiting(self) -> None:
        try:
            while self._rows or self._unsaved or self._dropped_points > self._dropped_recorded:
                # A document is committed with the rows that belong to it, which may be any of those.
                limit = None if self._unsaved else _ROWS_PER_WRITE
                batch = list(islice(self._rows, limit))
                dropped = self._dropped_points
                self._store.write(
                    batch,
                    self._unsaved,
                    dropped - self._dropped_recorded,
                    repeated=self._fault is not None,
                )
                self._dropped_recorded = dropped
                self._unsaved.clear()
                for _ in batch:
                    self._rows.popleft()
        except StoreError as error:
            self._fault = str(error)
        else:
            self._fault = None
