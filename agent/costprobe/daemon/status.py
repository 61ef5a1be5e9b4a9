"""The stored status document, which `costprobe status` shows even when the daemon is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costprobe.app.accounting.ledger import StoreLedger
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

STATUS_EVERY_S = 10.0


class StatusWriter:
    """Store the status document at changes and every STATUS_EVERY_S.

    Args:
        document: The present status document.
        ledger: Stores it.
        clock: The host's clocks.
    """

    def __init__(
        self, document: Callable[[], dict[str, Any]], ledger: StoreLedger, clock: Clock
    ) -> None:
        self._document = document
        self._ledger = ledger
        self._clock = clock
        self._due_ns = 0

    def write(self, **changes: object) -> None:
        """Store the status document now.

        Args:
            changes: Keys whose values replace those of the document.
        """
        # A little early, so that a job every ten seconds writes at each of its runs.
        self._due_ns = self._clock.monotonic_ns() + int(0.9 * STATUS_EVERY_S * NS_PER_S)
        self._ledger.put_state("status", {**self._document(), **changes})

    def write_if_due(self) -> None:
        """Store the status document unless that was done in the last STATUS_EVERY_S."""
        if self._clock.monotonic_ns() >= self._due_ns:
            self.write()
