"""What operators ask of the running daemon, handed to the parts of the present configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.alert import Silence
from agent.daemon.running import Running
from agent.model import Point


class Asked:
    """Silences, tests, retries and rows to keep, for whichever configuration is at work.

    Args:
        running: The present one; None while there is none.
    """

    def __init__(self, running: Callable[[], Running | None]) -> None:
        self._running = running

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
