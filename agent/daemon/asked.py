"""What operators ask of the running daemon, handed to the parts of the present configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.alert import Silence
from agent.daemon.running import Running
from agent.model import Point


class Asked:
    """Silences, tests, retries and rows to keep, for whichever configuration is at work.

    Args:
        running: The present one; None while there is none.
        status: What `infercost status` is made of.
    """

    def __init__(
        self, running: Callable[[], Running | None], status: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._running = running
        self._status = status

    def status(self) -> Mapping[str, Any]:
        """What the daemon says of itself, also while the store cannot be written."""
        return self._status()

    def add_silence(self, silence: Silence) -> None:
        """Adds a silence."""
        self._present().watching.add_silence(silence)

    def end_silence(self, silence_id: str) -> Silence:
        """Ends a silence."""
        return self._present().watching.end_silence(silence_id)

    def silences(self) -> Sequence[Silence]:
        """The silences that hold or will."""
        return self._present().watching.silences()

    def send_test(self, notifier: str | None) -> Mapping[str, str]:
        """Tells a test through a notifier, or all."""
        return self._present().notifying.send_test(notifier)

    def retry_sink(self, sink: str | None) -> Sequence[str]:
        """Tries a sink again at once, or all."""
        return self._present().pushing.retry(sink)

    def keep(self, rows: Sequence[Point]) -> None:
        """Keeps rows that a command measured."""
        self._present().accounts.keep(rows)

    def store_path(self) -> Path:
        """The store that rows are kept in."""
        return self._present().store_path

    def _present(self) -> Running:
        running = self._running()
        if running is None:
            raise ValueError("the daemon is starting or stopping; ask again in a moment")
        return running
