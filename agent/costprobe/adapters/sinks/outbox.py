"""The store's interface for delivery: live rows, and a backlog that is sent alongside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from costprobe.core.outbox import OutboxRow, RowBatch


class RowStream(Protocol):
    """Rows that are sent one after the other."""

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows; None if there are none.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        ...

    def rows(self, batch: RowBatch) -> Sequence[OutboxRow]:
        """Return the rows of a batch as a list, in the order in which they are sent."""
        ...

    def done(
        self, batch: RowBatch, seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Record that the rows of a batch up to the row `seq` need not be sent again.

        Args:
            batch: The batch.
            seq: Sequence number of the last of these rows.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were permanently rejected, with the reasons.
        """
        ...


class Outbox(Protocol):
    """The rows that one sink has not acknowledged."""

    @property
    def live(self) -> RowStream:
        """The newest rows."""
        ...

    @property
    def backlog(self) -> RowStream:
        """Rows that were not sent during an outage."""
        ...

    def move_to_backlog(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""
        ...
