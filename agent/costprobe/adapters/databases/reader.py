"""The reader of a fleet's database: bounded HTTP requests, and splitting of refused spans.

One interface for all databases, which share its limits and its splitting. Requests carry the
credentials and the tenant of the database.
"""

from __future__ import annotations

import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from costprobe.adapters.databases.question import FleetAnswer, FleetConfig, GroupValue, Question
from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import (
    Destination,
    ExchangeLimits,
    basic,
    bearer,
)
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import (
    ACCEPTED,
    DeliveryError,
    Hints,
    HttpResponse,
    Rejected,
    RetryLater,
    json_object,
    raise_for_status,
)
from costprobe.core.clock import Clock
from costprobe.core.outside import MAX_BYTES, OversizedInputError, UnusableInputError, bounded_json
from costprobe.core.periods import HOUR_NS, iso
from costprobe.core.records import NS_PER_S

_HINTS: Final = Hints(
    unauthorized="check token, password or key of [fleet]",
    not_found="check url, kind and tenant of [fleet]",
    unexpected="check url and kind of [fleet]",
)
_TOO_MANY_REQUESTS: Final = 429
# VictoriaMetrics quotes the query, which may be longer than the message that is kept.
_QUERY: Final = re.compile(r'"(?:[^"\\]|\\.){40,}"')
# Questions at a time: the database computes two while the answer of another is parsed.
PARALLEL: Final = 3
# Measurements with hourly rows; of the others rows are few.
_HOURLY: Final = frozenset(
    {"device", "probe", "software", "cost", "serving", "allocation", "tenant", "slo"}
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


class Throttled(RetryLater):
    """The database limits the rate of requests: fewer of them help, not smaller ones."""


class Transport:
    """Sends queries and returns JSON objects. Thread-safe.

    Args:
        config: The section [fleet].
        clock: For a Retry-After date.
    """

    def __init__(self, config: FleetConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        limits = ExchangeLimits(config.timeout_s, config.timeout_s, max_body_bytes=MAX_BYTES + 1)
        self._http = HttpClient(
            limits,
            ca_file=config.ca_file,
            keep=PARALLEL,
            further_headers=config.sent_headers,
        )

    def post(self, path: str, form: Mapping[str, str]) -> list[dict[str, Any]]:
        """Send a form to a path below the section's URL and return the JSON objects of the response.

        There is one a line, or one over all lines; at least one.

        Raises:
            Throttled: The database limits the rate of requests.
            RetryLater: It is unreachable, overloaded or too slow.
            Rejected: It rejected the query, or its answer is too large or no JSON object.
            Misconfigured: URL, certificates or credentials are wrong.
        """
        headers = self._headers()
        destination = Destination.parse(self._config.url.rstrip("/") + path)
        response = self._http.request(
            "POST",
            destination,
            {**headers, "Content-Type": "application/x-www-form-urlencoded"},
            urlencode(form).encode(),
        )
        try:
            raise_for_status(
                without_query(response),
                now_s=self._clock.time_ns() / NS_PER_S,
                hints=_HINTS,
                is_tls=destination.is_tls,
                name=destination.name,
            )
        except RetryLater as error:
            if response.status != _TOO_MANY_REQUESTS:
                raise
            when = "later" if error.after_s is None else f"in {error.after_s:,.0f} s"
            raise Throttled(f"{error.reason}; try again {when}", error.after_s) from None
        try:
            return _objects(response.body)
        except UnusableInputError as error:
            raise Rejected(
                f"{destination.name}: unusable answer ({error}); {_HINTS.unexpected}",
                too_large=isinstance(error, OversizedInputError),
            ) from None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {}
        if config.tenant is not None and config.kind == "prometheus":
            headers["X-Scope-OrgID"] = config.tenant
        if config.user is not None:
            authorization = basic(config.user, config.password)
        else:
            # InfluxDB 2.x does not accept the scheme Bearer.
            scheme = "Token" if config.kind == "influxql" else "Bearer"
            authorization = bearer(config.token, scheme)
        return headers | authorization


def without_query(response: HttpResponse) -> HttpResponse:
    """Return a response whose error quotes no query: its reason may stand behind it."""
    if response.status in ACCEPTED:
        return response
    message = (json_object(response.body) or {}).get("error")
    if not isinstance(message, str):
        return response
    return replace(response, body=json.dumps({"error": _QUERY.sub('"…"', message)}).encode())


def _objects(body: bytes) -> list[dict[str, Any]]:
    """Parse the JSON objects of a response."""
    lines = body.strip().split(b"}\n{")
    # Together they are as bounded as one.
    document = bounded_json(b"[" + b"},{".join(lines) + b"]", MAX_BYTES)
    if not document or not all(isinstance(one, dict) for one in document):
        raise UnusableInputError("not a JSON object")
    return document  # type: ignore[no-any-return]


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
        clock: UTC.
    """

    def __init__(self, config: FleetConfig, clock: Clock) -> None:
        self._config = config
        self._transport = Transport(config, clock)

    @abstractmethod
    def fetch(self, question: Question, span: Span) -> FleetAnswer:
        """Ask about one span, in one request or a few.

        Raises:
            RetryLater: The database is unreachable, overloaded or too slow.
            Rejected: It rejected the query, or the answer is too large.
            Misconfigured: URL or credentials are wrong.
        """

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

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
        shown = dict.fromkeys(outside_text(problem) for problem in problems)
        return FleetAnswer(rows, tuple(list(shown)[:_PROBLEMS_MAX]))

    def _spans(self, question: Question, start_ns: int, end_ns: int, now_ns: int) -> Iterator[Span]:
        """Yield the parts of a period by the rows that answer them."""
        start_h, end_h = -(-start_ns // HOUR_NS), min(end_ns, now_ns - _HOURLY_LATE_NS) // HOUR_NS
        length_ns = max(end_ns - start_ns, question.part_of_s * NS_PER_S)
        is_long = length_ns > _HOURLY_FROM_NS and start_h < end_h
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
