"""The reader of a fleet: one interface, with the limits and the splitting that all databases share."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from costprobe.adapters.fleet.question import FleetAnswer, GroupValue, Question
from costprobe.adapters.fleet.settings import FleetConfig
from costprobe.adapters.fleet.transport import Throttled
from costprobe.adapters.net.errors import DeliveryError, Rejected, RetryLater
from costprobe.adapters.system.outside_text import outside_text
from costprobe.core.moments import iso
from costprobe.core.records import NS_PER_S

HOUR_NS: Final = 3600 * NS_PER_S
# Measurements with hourly rows; of the others rows are few.
_HOURLY: Final = frozenset(
    {"device", "probe", "software", "cost", "serving", "allocation", "tenant"}
)
# From here on the hourly rows answer, where there are any.
_HOURLY_FROM_NS: Final = 48 * HOUR_NS
# Hours that may not be aggregated yet.
_HOURLY_LATE_NS: Final = 2 * HOUR_NS
# A refused span is halved so often: into at most 32 parts.
_HALVINGS_MAX: Final = 5
# Longest time of a question, in requests of the longest time.
_REQUESTS_OF_TIME: Final = 4
_PROBLEMS_MAX: Final = 5
_NO_TIME: Final = "the time for this question is over; ask for a shorter period"
# In the errors of InfluxDB, VictoriaMetrics, Prometheus, Mimir, Thanos and proxies, and in our own.
_LIMIT: Final = re.compile(
    r"\blimit|exceed|too many|too long|cannot select more|not enough memory"
    r"|timeout|timed out|time-out|no response within|no complete response"
)


class Span(NamedTuple):
    """A span of time that one request asks about: after its start, up to its end.

    Attributes:
        start_ns: UTC in ns.
        end_ns: UTC in ns.
        is_hourly: Whether the hourly rows answer.
        follows_hours: Whether hourly rows answer for the time before. Those of InfluxDB begin with a row
            at the full hour, so that this span does, too.
        precedes_hours: Whether hourly rows answer for the time after.
    """

    start_ns: int
    end_ns: int
    is_hourly: bool = False
    follows_hours: bool = False
    precedes_hours: bool = False


class FleetReader(ABC):
    """Answers questions about all hosts from one database. Thread-safe.

    Args:
        config: The section [fleet].
    """

    def __init__(self, config: FleetConfig) -> None:
        self._config = config

    @abstractmethod
    def fetch(self, question: Question, span: Span) -> FleetAnswer:
        """Ask about one span, in one request or a few.

        Raises:
            RetryLater: The database is unreachable, overloaded or too slow.
            Rejected: It rejected the query, or the answer is too large.
            Misconfigured: URL or credentials are wrong.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def ask(self, question: Question, start_ns: int, end_ns: int, now_ns: int) -> FleetAnswer:
        """Ask a question about the rows after `start_ns` up to `end_ns`.

        Where the database has hourly rows, they answer for whole hours of longer periods. Where it
        rejects a period as too large, or runs out of time, the period is halved; what remains
        without an answer is stated in `FleetAnswer.problems`.

        Args:
            question: The question.
            start_ns: UTC in ns, at a multiple of the question's `bucket_s` and `every_s`.
            end_ns: UTC in ns, likewise.
            now_ns: UTC in ns: the newest hours have no hourly rows yet.

        Raises:
            DeliveryError: No part of the period was answered.
        """
        ends_s = time.monotonic() + _REQUESTS_OF_TIME * self._config.timeout_s
        try:
            return self._ask_until(question, start_ns, end_ns, now_ns, ends_s)
        except (RetryLater, Rejected) as error:
            is_count = question.over_time == question.across == "count" and not question.every_s
            if not (is_count and is_limit(error)):
                raise
            # A series of several parts counts once: those of the parts have to be known.
            each = replace(question, over_time="sum", across="sum", by=question.identity)
            found = self._ask_until(each, start_ns, end_ns, now_ns, ends_s)
            if not found.rows:
                raise
            return replace(found, rows=counted_series(question, found.rows, end_ns))

    def _ask_until(
        self, question: Question, start_ns: int, end_ns: int, now_ns: int, ends_s: float
    ) -> FleetAnswer:
        """Ask until a monotonic time in s; other arguments and errors as of `ask`."""
        answers: list[FleetAnswer] = []
        missing: list[tuple[Span, DeliveryError]] = []
        for span in self._spans(question, start_ns, end_ns, now_ns):
            for answered in self._answers(question, span, _HALVINGS_MAX, ends_s):
                if isinstance(answered, FleetAnswer):
                    answers.append(answered)
                else:
                    missing.append(answered)
        if not answers and missing:
            raise missing[0][1]
        problems = [problem for answer in answers for problem in answer.problems]
        problems += [
            f"no answer from {iso(span.start_ns)} to {iso(span.end_ns)}: {error.reason}"
            for span, error in joined(missing)
        ]
        rows = merged(question, [answer.rows for answer in answers])
        if len(rows) > self._config.max_groups and not question.every_s:
            raise Rejected(
                f"the answer has {len(rows):,} groups, more than fleet.max_groups; ask for fewer hosts"
            )
        shown = dict.fromkeys(outside_text(problem) for problem in problems)
        return FleetAnswer(rows, tuple(list(shown)[:_PROBLEMS_MAX]))

    def _spans(self, question: Question, start_ns: int, end_ns: int, now_ns: int) -> Iterator[Span]:
        """Yield the parts of a period by the rows that answer them."""
        start_h, end_h = -(-start_ns // HOUR_NS), min(end_ns, now_ns - _HOURLY_LATE_NS) // HOUR_NS
        is_long = end_ns - start_ns > _HOURLY_FROM_NS and start_h < end_h
        # An hourly row stands for many.
        is_counted = question.over_time == "count" and question.across == "sum"
        is_hourly = (
            self._config.hourly_database is not None
            and question.measurement in _HOURLY
            and question.over_time not in ("newest", "share")
            and not is_counted
        )
        has_hours = question.every_s % 3600 == 0 and question.bucket_s % 3600 == 0
        if not (is_long and is_hourly and has_hours):
            yield Span(start_ns, end_ns)
            return
        first_ns, last_ns = start_h * HOUR_NS, end_h * HOUR_NS
        yield Span(first_ns, last_ns, is_hourly=True)
        if question.is_additive:
            # A median of parts is not that of the whole: it leaves out the edges.
            if start_ns < first_ns:
                yield Span(start_ns, first_ns, precedes_hours=True)
            if last_ns < end_ns:
                yield Span(last_ns, end_ns, follows_hours=True)

    def _answers(
        self,
        question: Question,
        span: Span,
        halvings: int,
        ends_s: float,
        of_whole: DeliveryError | None = None,
    ) -> Iterator[FleetAnswer | tuple[Span, DeliveryError]]:
        """Yield the answers of a span, or of its halves if it is rejected as a whole.

        Args:
            question: The question.
            span: The span.
            halvings: How often it may be halved.
            ends_s: Monotonic time from which on nothing more is asked, in s.
            of_whole: Why the span of which this is a half has no answer; None if this is none.
        """
        if time.monotonic() > ends_s:
            yield span, of_whole or RetryLater(_NO_TIME)
            return
        try:
            found = self.fetch(question, span)
        except (RetryLater, Rejected) as error:
            of_whole = error
            bucket_s = question.bucket_s if question.over_time == "covered" else 0
            step_ns = max(question.every_s, bucket_s, 60) * NS_PER_S
            half_ns = (span.end_ns - span.start_ns) // 2 // step_ns * step_ns
            can_halve = question.is_divisible or question.every_s > 0
            if not (halvings and half_ns and can_halve and is_limit(error)):
                yield span, error
                return
        else:
            yield found
            return
        middle_ns = span.start_ns + half_ns
        for half in (
            span._replace(end_ns=middle_ns, precedes_hours=False),
            span._replace(start_ns=middle_ns, follows_hours=False),
        ):
            yield from self._answers(question, half, halvings - 1, ends_s, of_whole)


def is_limit(error: DeliveryError) -> bool:
    """Return whether a shorter period may succeed: a limit of time, samples, series or size."""
    if isinstance(error, Rejected) and error.too_large:
        return True
    return not isinstance(error, Throttled) and bool(_LIMIT.search(error.reason.lower()))


def joined(
    missing: Sequence[tuple[Span, DeliveryError]],
) -> Iterator[tuple[Span, DeliveryError]]:
    """Yield spans without an answer, adjacent ones as one with the first error."""
    for number, (span, error) in enumerate(missing):
        if number and missing[number - 1][0].end_ns == span.start_ns:
            continue
        end_ns = span.end_ns
        for following, _ in missing[number + 1 :]:
            if following.start_ns == end_ns:
                end_ns = following.end_ns
        yield span._replace(end_ns=end_ns), error


def counted_series(
    question: Question, series: Sequence[GroupValue], end_ns: int
) -> tuple[GroupValue, ...]:
    """Return the number of series of each group of a question, from a row of each series."""
    positions = [question.identity.index(tag) for tag in question.by]
    counts = Counter(tuple([row.tags[position] for position in positions]) for row in series)
    return tuple(GroupValue(tags, float(count), end_ns) for tags, count in counts.items())


def merged(question: Question, parts: Sequence[Sequence[GroupValue]]) -> tuple[GroupValue, ...]:
    """Return the rows of the parts of a period as those of the whole.

    Numbers of series are those of the part with the most: a series counts once.
    """
    if len(parts) == 1:
        return tuple(parts[0])
    groups: dict[tuple[tuple[str, ...], int], list[float]] = defaultdict(list)
    end_ns = max((row.time_ns for rows in parts for row in rows), default=0)
    for rows in parts:
        for row in rows:
            groups[row.tags, row.time_ns if question.every_s else end_ns].append(row.value)
    combine = math.fsum if question.is_additive else max
    return tuple(
        GroupValue(tags, combine(values), time_ns) for (tags, time_ns), values in groups.items()
    )
