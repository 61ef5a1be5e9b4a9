"""Functions that run at the same time, in threads that do not outlive the main thread.

A process waits for the threads of `ThreadPoolExecutor` before it ends: Ctrl-C would not end a command whose
database does not answer.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def started(
    function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> Future[_Result]:
    """Run a function in a thread of its own; return the future of its result or error."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            future.set_exception(error)

    # A thread inherits what is blocked: an interrupt that it received would not wake the main thread from a lock.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        Thread(target=run, daemon=True).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return future


def wait_for(*futures: Future[Any]) -> None:
    """Wait until all have a result or an error."""
    wait(futures)
