"""What the store is to a sink: rows as they come, and a backlog, each one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Row(Protocol):
    """A point in the outbox."""

    @property
    def seq(self) -> int:
        """Its place."""
        ...

    @property
    def line(self) -> str:
        """Its line protocol."""
        ...


class Pack(Protocol):
    """Rows that leave together."""

    @property
    def seq(self) -> int:
        """Place of the one that leaves last."""
        ...

    @property
    def points(self) -> int:
        """How many they are."""
        ...

    @property
    def lines(self) -> bytes:
        """Their line protocol, with line ends between."""
        ...


class Rows(Protocol):
    """Rows that leave one after the other."""

    def rows(self, limit: int) -> Sequence[Row]:
        """The next of them."""
        ...

    def pack(self, limit: int) -> Pack | None:
        """The next of them, at most `limit`, as one text; None if nothing is left."""
        ...

    def pack_behind(self, seq: int, limit: int) -> Pack | None:
        """What will be next once all up to a row is done; None where that is not known.

        Another thread than that of the other methods may ask.
        """
        ...

    def is_next(self, seq: int) -> bool:
        """Whether a pack that `pack_behind` gave, with its seq, is what is next."""
        ...

    def done(self, seq: int, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Moves on to behind a row, counts what was sent, and puts aside what was refused."""
        ...


class Outbox(Protocol):
    """What the store is to a sink."""

    @property
    def live(self) -> Rows:
        """Rows as they come."""
        ...

    @property
    def backlog(self) -> Rows:
        """Rows that an outage left behind."""
        ...

    def set_apart(self, over_points: int) -> None:
        """Makes a backlog of the live rows, where they are more than `over_points`."""
        ...
