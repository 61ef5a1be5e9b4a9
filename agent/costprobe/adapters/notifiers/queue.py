"""The queue that a delivery worker reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class PendingNotice(Protocol):
    """An alert in a notifier's queue."""

    @property
    def id(self) -> int:
        """Identifier in the queue; a later notice has a higher id."""
        ...

    @property
    def alert(self) -> Mapping[str, Any]:
        """The alert in the format of `Alert.to_document`."""
        ...

    @property
    def queued_ns(self) -> int:
        """UTC in ns at which it was queued."""
        ...


class NoticeQueue(Protocol):
    """One notifier's queue, which survives a crash."""

    def waiting(self, limit: int) -> Sequence[PendingNotice]:
        """Return up to `limit` notices, oldest first."""
        ...

    def sent(self, notices: Sequence[int]) -> None:
        """Remove notices that were delivered."""
        ...

    def dropped(self, notice: int, reason: str) -> None:
        """Remove a notice that will not be delivered, and count it."""
        ...
