"""A period of a fleet, and the answers of its database about it, asked at the same time.

Questions run in threads that do not outlive the main thread. A process waits for the threads of
`ThreadPoolExecutor` before it ends: Ctrl-C would not end a command whose database does not
answer.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from costprobe.adapters.databases.question import FleetAnswer, GroupValue, Question
from costprobe.adapters.databases.reader import PARALLEL, FleetReader
from costprobe.adapters.http.errors import DeliveryError
from costprobe.core.records import NS_PER_S

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# Rows arrive in the database with a delay: up to a flush interval, and 30 s in VictoriaMetrics.
ARRIVED_NS: Final = 60 * NS_PER_S
FINE_S: Final = 300
COARSE_S: Final = 3600
# A period is counted in at most about so many buckets.
_BUCKETS_MAX: Final = 720

# A group: the values of the tags that a question is grouped by.
Group = tuple[str, ...]


class FleetPeriod(NamedTuple):
    """The period of a question: the rows after its start up to its end.

    Attributes:
        start_ns: UTC in ns, a multiple of the bucket.
        end_ns: UTC in ns, likewise.
        bucket_s: Length of the buckets in which coverage is counted, in s.
        now_ns: UTC in ns.
    """

    start_ns: int
    end_ns: int
    bucket_s: int
    now_ns: int

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return (self.end_ns - self.start_ns) // (self.bucket_s * NS_PER_S)


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


def fleet_period(since_ns: int, until_ns: int, now_ns: int) -> FleetPeriod:
    """Return a period in whole buckets: both instants are rounded down.

    Args:
        since_ns: UTC in ns.
        until_ns: UTC in ns; after `since_ns`.
        now_ns: UTC in ns.

    Raises:
        ValueError: The period has no whole bucket.
    """
    is_short = until_ns - since_ns <= _BUCKETS_MAX * FINE_S * NS_PER_S
    bucket_s = FINE_S if is_short else COARSE_S
    step_ns = bucket_s * NS_PER_S
    period = FleetPeriod(
        since_ns // step_ns * step_ns, until_ns // step_ns * step_ns, bucket_s, now_ns
    )
    if not period.buckets:
        raise ValueError(f"a period is at least {FINE_S // 60} minutes long")
    return period


class FleetAnswers:
    """Asks a fleet's database about one period, each question once, and gathers why answers are partial.

    Thread-safe; at most PARALLEL requests at a time. After a question without an answer the others fail like it,
    without a request.

    Args:
        reader: The database.
        period: The period.
        labels: Only rows with these tags.

    Attributes:
        period: The period.
        labels: Only rows with these tags.
    """

    def __init__(self, reader: FleetReader, period: FleetPeriod, labels: Mapping[str, str]) -> None:
        self._reader = reader
        self.labels = labels
        self._problems: dict[str, None] = {}
        self._lock, self._slots = Lock(), BoundedSemaphore(PARALLEL)
        self._failures: list[DeliveryError] = []
        self._known: dict[str, Future[FleetAnswer]] = {}
        self.period = period
        self._part_of_s = 0

    @property
    def problems(self) -> tuple[str, ...]:
        """Why answers are partial, one sentence each, in an order that no thread changes."""
        return tuple(sorted(self._problems))

    def part(self, since_ns: int, until_ns: int) -> FleetAnswers:
        """Return the same for a part of the period, by the same rows.

        Args:
            since_ns: ns before the end of the period.
            until_ns: ns before the end of the period.
        """
        start_ns, end_ns = self.period.start_ns, self.period.end_ns
        other = self.over(
            self.period._replace(start_ns=end_ns - since_ns, end_ns=end_ns - until_ns)
        )
        other._part_of_s = (end_ns - start_ns) // NS_PER_S  # noqa: SLF001 - of this class
        return other

    def over(self, period: FleetPeriod, labels: Mapping[str, str] | None = None) -> FleetAnswers:
        """Return the same for another period; reasons of partial answers are gathered together.

        Args:
            period: The period.
            labels: Only rows with these tags; None for those of this one.
        """
        other = FleetAnswers(self._reader, period, self.labels if labels is None else labels)
        other._problems, other._slots = self._problems, self._slots
        other._failures = self._failures
        return other

    def forget(self) -> None:
        """Release the answers: a question that is asked again is a request again."""
        with self._lock:
            self._known.clear()

    def groups(self, question: Question) -> dict[Group, float]:
        """Return the number of each group.

        Raises:
            DeliveryError: The database did not answer.
        """
        return {row.tags: row.value for row in self.rows(question)}

    def each(self, *questions: Question) -> list[dict[Group, float]]:
        """Return the number of each group for each question.

        Raises:
            DeliveryError: The database did not answer one of them.
        """
        return [{row.tags: row.value for row in found} for found in self.rows_of_each(*questions)]

    def rows_of_each(self, *questions: Question) -> list[tuple[GroupValue, ...]]:
        """Return the rows of each question, as `rows`.

        Raises:
            DeliveryError: The database did not answer one of them.
        """
        found = [started(self.rows, question) for question in questions]
        wait_for(*found)
        return [one.result() for one in found]

    def rows(self, question: Question) -> tuple[GroupValue, ...]:
        """Return the number of each group and interval of `every_s`, one row each.

        Raises:
            DeliveryError: The database did not answer.
        """
        period = self.period
        asked = dataclasses.replace(
            question,
            where={**question.where, **self.labels},
            bucket_s=period.bucket_s,
            part_of_s=self._part_of_s,
        )
        key = repr((asked, period))
        with self._lock:
            is_first = key not in self._known
            known = self._known.setdefault(key, Future())
        if is_first:
            try:
                with self._slots:
                    known.set_result(self._asked(asked))
            except BaseException as error:
                known.set_exception(error)
                raise
        answer = known.result()
        self._problems.update(dict.fromkeys(answer.problems))
        return answer.rows

    def _asked(self, question: Question) -> FleetAnswer:
        if self._failures:
            raise self._failures[0]
        period = self.period
        try:
            return self._reader.ask(question, period.start_ns, period.end_ns, period.now_ns)
        except DeliveryError as error:
            self._failures.append(error)
            raise


def hours_of(period: FleetPeriod) -> float:
    """Return the length of a period in hours."""
    return (period.end_ns - period.start_ns) / NS_PER_S / 3600
