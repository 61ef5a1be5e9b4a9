"""The answers of the sensor child that threads of the daemon wait for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future

from costprobe.adapters.sensors.protocol.messages import Message


class PendingAnswers:
    """The requests without an answer, by their numbers; thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Message | str]] = {}

    def ask(
        self, send: Callable[[Message], bool], request: Message, timeout_s: float
    ) -> Message | str:
        """Send a request and wait for its answer; return the reason if there is none.

        Args:
            send: Sends a message; returns False if the child cannot be reached.
            request: The request, which receives a number.
            timeout_s: How long to wait, in s.
        """
        number = next(self._numbers)
        answer: Future[Message | str] = Future()
        self._pending[number] = answer
        try:
            if not send({**request, "id": number}):
                return "the sensor process is not running"
            return answer.result(timeout_s)
        except TimeoutError:
            return f"the sensor process did not answer within {timeout_s:g} s"
        finally:
            del self._pending[number]

    def take(self, answer: Message) -> None:
        """Hand an answer to the thread that waits for it, if it still does."""
        self._set(self._pending.get(answer["id"]), answer)

    def fail(self, reason: str) -> None:
        """End every wait, because the child ended."""
        for waiting in list(self._pending.values()):
            self._set(waiting, reason)

    @staticmethod
    def _set(waiting: Future[Message | str] | None, answer: Message | str) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
