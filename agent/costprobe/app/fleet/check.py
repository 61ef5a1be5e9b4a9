"""The contract of a check of `costprobe fleet watch`, and how it asks the database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from costprobe.adapters.fleet.reader import FleetReader
from costprobe.app.fleet.answers import FleetAnswers, FleetPeriod, fleet_period
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S, Point

if TYPE_CHECKING:
    from collections.abc import Iterator


class PartialAnswerError(Exception):
    """The database answered for a part of the fleet or of the time; the text gives the reason."""


class FleetQuery:
    """Asks the database of a fleet; a partial answer is an error.

    Args:
        reader: The database.
        now_ns: UTC in ns of the evaluation.
    """

    def __init__(self, reader: FleetReader, now_ns: int) -> None:
        self._reader = reader
        self.now_ns = now_ns

    @contextmanager
    def over(
        self,
        start_ns: int,
        end_ns: int,
        bucket_s: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[FleetAnswers]:
        """Yield answers about a period; what the block computes from them may be kept after it.

        Args:
            start_ns: UTC in ns.
            end_ns: UTC in ns.
            bucket_s: Length in s that both are rounded down to; None for that of `fleet_period`.
            labels: Only rows with these tags.

        Raises:
            PartialAnswerError: At the end of the block, if an answer in it was partial.
        """
        if bucket_s is None:
            period = fleet_period(start_ns, end_ns, self.now_ns)
        else:
            step_ns = bucket_s * NS_PER_S
            period = FleetPeriod(
                start_ns // step_ns * step_ns, end_ns // step_ns * step_ns, bucket_s, self.now_ns
            )
        answers = FleetAnswers(self._reader, period, labels or {})
        yield answers
        if answers.problems:
            raise PartialAnswerError("; ".join(answers.problems))


class FleetCheck(ABC):
    """A question that the watcher asks again and again, with the state of its answers.

    Attributes:
        name: Of the check, in messages.
        is_analysis: Whether it is asked at `analyze_every` instead of `every`.
    """

    name: str
    is_analysis: bool = True

    @abstractmethod
    def evaluate(self, query: FleetQuery) -> None:
        """Ask the database; the state changes only if all answers were complete.

        Raises:
            DeliveryError: The database did not answer.
            PartialAnswerError: It answered in part.
        """

    @abstractmethod
    def faults(self) -> list[Fault]:
        """Return what the last complete answers showed."""

    def points(self) -> list[Point]:
        """Return and remove the rows that the last evaluation computed."""
        return []

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the state as JSON."""
        return None

    def restore(self, document: Any) -> None:  # noqa: ANN401, B027 - any JSON value; optional
        """Replace the state by one that `document` returned.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It is damaged.
        """
