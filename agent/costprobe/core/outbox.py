"""Rows of the outbox that the store passes to a sink."""

from __future__ import annotations

from typing import Literal, NamedTuple

RowKind = Literal["all", "important", "rest"]


class RowRange(NamedTuple):
    """Rows that a sink has not acknowledged, by their sequence numbers.

    Attributes:
        kind: All rows, only the important ones, or only the others (device, agent).
        after: Sequence number before the first row.
        until: Sequence number of the last row.
        thinned: Whether only the first row of each minute of a device is sent.
    """

    kind: RowKind
    after: int
    until: int
    thinned: bool = False


class OutboxRow(NamedTuple):
    """One row.

    Attributes:
        seq: Sequence number in the order of commits.
        line: Line protocol without a line end; the time is in ns.
    """

    seq: int
    line: str


class RowBatch(NamedTuple):
    """Rows that are sent in one request.

    Attributes:
        covered: Range that is acknowledged with the batch.
        seq: Sequence number of the row that is sent last.
        points: Number of rows.
        lines: Line protocol, one row a line.
    """

    covered: RowRange
    seq: int
    points: int
    lines: bytes
