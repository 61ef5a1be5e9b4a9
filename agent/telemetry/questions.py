"""Questions to the sensor child that wait for their answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from agent.telemetry.wire import Message


class _Slot:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Message | str = "no answer"


class Questions:
    """Pairs each answer with the thread that asked, by its id.

    Every question ends: with its answer, at its timeout, or when the child does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._open: dict[int, _Slot] = {}

    def ask(self, send: Callable[[int], bool], timeout_s: float) -> Message | str:
        """Asks and waits.

        Args:
            send: Sends the question under the given id; False where that fails.
            timeout_s: How long to wait in s.

        Returns:
            The answer, or why there is none.
        """
        slot = _Slot()
        with self._lock:
            identity = next(self._ids)
            self._open[identity] = slot
        try:
            if not send(identity):
                return "the sensor process is not running"
            if not slot.done.wait(timeout_s):
                return f"the sensor process did not answer within {timeout_s:g} s"
            return slot.answer
        finally:
            with self._lock:
                self._open.pop(identity, None)

    def answer(self, message: Message) -> bool:
        """Takes an answer; False where nobody waits for it any more."""
        with self._lock:
            slot = self._open.get(message["id"])
        if slot is None:
            return False
        slot.answer = message
        slot.done.set()
        return True

    def fail_all(self, reason: str) -> None:
        """Ends every open question, because the child that was asked is gone."""
        with self._lock:
            slots = list(self._open.values())
        for slot in slots:
            slot.answer = reason
            slot.done.set()
