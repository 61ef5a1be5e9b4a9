"""What delivery needs of the store: live rows, and a backlog that is sent beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from costprobe.core.outbox import OutboxRow, RowBatch


class RowStream(Protocol):
    """Rows that are sent one after the other."""

    def batch(self, limit: int) -> RowBatch | None:
        """Return the next rows, at most `limit`; None if none are left."""
        ...

    def rows(self, batch: RowBatch) -> Sequence[OutboxRow]:
        """Return the rows of a batch one by one, in the order in which they are sent."""
        ...

    def done(
        self, batch: RowBatch, seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Record that the rows of a batch up to the row `seq` need not be sent again.

        Args:
            batch: The batch.
            seq: Sequence number of the last of these rows.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were refused for good, with the reason.
        """
        ...


class BacklogStream(RowStream, Protocol):
    """Rows that an outage left behind."""

    def batch_after(self, batch: RowBatch, limit: int) -> RowBatch | None:
        """Return the rows that come next once `batch` is done, or None; any thread may call it."""
        ...


class Outbox(Protocol):
    """The rows that one sink has not acknowledged."""

    @property
    def live(self) -> RowStream:
        """The newest rows."""
        ...

    @property
    def backlog(self) -> BacklogStream:
        """Rows that an outage left behind."""
        ...

    def set_apart(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""
        ...
