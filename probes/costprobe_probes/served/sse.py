"""Server-sent events (WHATWG HTML standard); only their data fields."""

from __future__ import annotations

from costprobe_probes.served.http import Failure

MAX_EVENT_BYTES = 1024 * 1024


class EventStream:
    """Split a stream into events; buffer one incomplete event of at most MAX_EVENT_BYTES."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._bytes = 0

    def feed(self, content: bytes) -> list[bytes]:
        """Add received bytes; return the data of the events that they complete.

        Raises:
            Failure: A line or an event is too long.
        """
        events = []
        *complete, incomplete = content.split(b"\n")
        for end in complete:
            line = b"".join([*self._line, end]).rstrip(b"\r")
            self._line.clear()
            self._count(len(end))
            event = self._add_line(line)
            if event is not None:
                events.append(event)
        self._line.append(incomplete)
        self._count(len(incomplete))
        return events

    def _add_line(self, line: bytes) -> bytes | None:
        """Add a line; return the data of the event that it ends, if any."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value[1:] if value.startswith(b" ") else value)
            return None
        event = b"\n".join(self._data) if self._data else None
        self._data.clear()
        self._bytes = 0
        return event

    def _count(self, size: int) -> None:
        # At least one byte for each piece: empty pieces take memory too.
        self._bytes += size + 1
        if self._bytes > MAX_EVENT_BYTES:
            raise Failure("too_large", f"an event has more than {MAX_EVENT_BYTES} bytes")
