"""Parsing the Prometheus text format, for a given set of counters.

The response is not trusted: its size, its lines, its series and the CPU time of parsing it are
limited, and a counter must be a finite number of at least zero that appears once.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from costprobe.adapters.host.redaction import outside_text

MAX_BYTES = 8 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_LINES = 200_000
MAX_SERIES = 5000
MAX_SERIES_CHARS = 2048
# CPU time of parsing one response.
MAX_PARSE_S = 0.25
# No real counter is larger, and beyond 2**53 a double no longer increments by one.
MAX_VALUE = 1e18
STARTED = "process_start_time_seconds"
# Label of the upper edge of a bucket, which it includes.
EDGE = "le"
_EXCERPT_CHARS = 60
_SUFFIX = re.compile(r"_(total|sum|count|bucket)\Z")
# Labels without braces in their values, and the value.
_PLAIN = re.compile(r"[^\s{}#]+(\{[^{}]*\})([^{}]*)")
_NAME_END = re.compile(r"[{ \t]")
# Lines between two looks at the clock.
_LINES_A_LOOK = 256
_TYPE = re.compile(r"#\s+TYPE\s+(\S+)\s+(\S+)")
Labels = tuple[tuple[str, str], ...]


class ScrapeError(Exception):
    """A failed scrape.

    Its text is one line for the operator with problem and fix, without secrets and with at most an
    excerpt of the response.
    """


@dataclass(frozen=True, slots=True)
class CounterSample:
    """One value of one series.

    Attributes:
        labels: Names and values, ordered by name.
        value: As written.
        created_s: UTC in s at which the series began; None if the server does not expose it.
    """

    labels: Labels
    value: float
    created_s: float | None


@dataclass(frozen=True, slots=True)
class Exposition:
    """The wanted counters that a server exposes.

    Attributes:
        samples: Their values, by metric name as written.
        types: Declared types of the wanted metrics, by name as declared.
        started_s: UTC in s at which the process started; None if it is not exposed.
        prefixes: The requested prefixes with which a metric's name begins.
    """

    samples: Mapping[str, tuple[CounterSample, ...]]
    types: Mapping[str, str]
    started_s: float | None
    prefixes: frozenset[str]

    def type_of(self, name: str) -> str | None:
        """The declared type of a metric: by its name, or by the name without its suffix.

        Ray declares a counter with `_total`, and without it a gauge.
        """
        return self.types.get(name, self.types.get(_family_of(name)))


def _family_of(name: str) -> str:
    """The name under which a metric is declared: without `_total`, `_sum`, `_count` or `_bucket`."""
    return _SUFFIX.sub("", name)


def parse_exposition(
    body: bytes,
    wanted: Collection[str],
    prefixes: Collection[str] = (),
    max_parse_s: float = MAX_PARSE_S,
    cpu_s: Callable[[], float] = time.thread_time,
) -> Exposition:
    """Parse the wanted counters of a response.

    Args:
        body: The response.
        wanted: Names of metrics.
        prefixes: Prefixes whose presence among the metric names is reported.
        max_parse_s: Longest CPU time in s.
        cpu_s: CPU time of this thread in s.

    Raises:
        ScrapeError: It is not in the text format, a wanted counter has an invalid value, or parsing
            takes longer than max_parse_s.
    """
    families = {_family_of(name) for name in wanted}
    known = {*wanted, *(f"{family}_created" for family in families), STARTED}
    types: dict[str, str] = {}
    values: dict[str, dict[Labels, float]] = {}
    series = 0
    ends_s = cpu_s() + max_parse_s
    for number, line in _relevant_lines(body, known):
        if number % _LINES_A_LOOK == 0 and cpu_s() > ends_s:
            raise ScrapeError(
                f"parsing the response takes more than {max_parse_s:g} s of CPU time; expose fewer"
                " metrics at this address"
            )
        if declared := _TYPE.match(line):
            if _family_of(declared[1]) in families:
                types[declared[1]] = declared[2]
            continue
        name = _NAME_END.split(line, maxsplit=1)[0]
        if name not in known:
            continue
        series += 1
        if series > MAX_SERIES:
            raise ScrapeError(f"more than {MAX_SERIES} series of the counters")
        labels, value = _sample(line, number)
        of_name = values.setdefault(name, {})
        if name in wanted:
            _check_counter(name, value, number, is_new=labels not in of_name)
        of_name[labels] = value
    samples = {
        name: tuple(
            CounterSample(labels, value, _instant(created.get(without_edge(labels))))
            for labels, value in of_name.items()
        )
        for name, of_name in values.items()
        if name in wanted
        for created in [values.get(f"{_family_of(name)}_created", {})]
    }
    started_s = _instant(next(reversed(values.get(STARTED, {}).values()), None))
    found = frozenset(prefix for prefix in prefixes if has_name(body, prefix))
    return Exposition(samples, types, started_s, found)


def _relevant_lines(body: bytes, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield numbered lines that declare a type or begin with a wanted name, and every 256th line.

    One at a time: a list of them would use ten times their memory.
    """
    if len(body) > MAX_BYTES:
        raise ScrapeError(f"the response is larger than {MAX_BYTES} bytes")
    if body and not body.endswith(b"\n"):
        # Half a number is a smaller number, which would look like a counter reset.
        raise ScrapeError(
            "the response ends within a line, or is not in the Prometheus text format"
        )
    starts = (b"# TYPE", *(name.encode() for name in names))
    for number, line in enumerate(io.BytesIO(body), start=1):
        if number > MAX_LINES:
            raise ScrapeError(f"the response has more than {MAX_LINES} lines")
        if len(line) > MAX_LINE_BYTES:
            raise ScrapeError(f"a line of the response is longer than {MAX_LINE_BYTES} bytes")
        begun = line.lstrip()
        is_relevant = begun.startswith(starts)
        if not is_relevant and number % _LINES_A_LOOK and line.isascii():
            continue
        try:
            yield number, begun.decode().rstrip()
        except UnicodeDecodeError:
            # Without the cause: its text would contain the response.
            raise ScrapeError("the response is not UTF-8 text") from None


def has_name(body: bytes, start: str) -> bool:
    """Return whether a metric's name begins with a text, by a search without parsing."""
    prefix = start.encode()
    starts = (b"\n" + prefix, b"TYPE " + prefix)
    return body.startswith(prefix) or any(start in body for start in starts)


def _sample(line: str, number: int) -> tuple[Labels, float]:
    """Labels and value of a line."""
    if len(line) > MAX_SERIES_CHARS:
        raise ScrapeError(f"line {number}: more than {MAX_SERIES_CHARS} characters for one series")
    plain = _PLAIN.fullmatch(line)
    try:
        if plain is None:
            return _parsed(line)
        return _labels(plain[1]), _parsed(f"value {plain[2]}")[1]
    except (ValueError, LookupError, TypeError, OverflowError):
        # Without the cause: its text would contain the line.
        raise ScrapeError(
            f"line {number} is not in the Prometheus text format: {excerpt(line)}"
        ) from None


@lru_cache(MAX_SERIES)
def _labels(written: str) -> Labels:
    """Labels as written: those of a series are the same in each response."""
    return _parsed(f"value{written} 0")[0]


def _parsed(line: str) -> tuple[Labels, float]:
    # Loaded with the first scrape: most daemons have no service.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    (family,) = text_string_to_metric_families(line + "\n")
    (sample,) = family.samples
    return tuple(sorted(sample.labels.items())), float(sample.value)


def _check_counter(name: str, value: float, number: int, *, is_new: bool) -> None:
    if not is_new:
        raise ScrapeError(f"line {number}: {name} appears twice with the same labels")
    if not math.isfinite(value) or value < 0 or value > MAX_VALUE:
        raise ScrapeError(f"line {number}: {name} is {value:g}, which is not a valid counter")


def without_edge(labels: Labels) -> Labels:
    """Return the labels of a histogram that a bucket belongs to."""
    return tuple(label for label in labels if label[0] != EDGE)


def _instant(time_s: float | None) -> float | None:
    return time_s if time_s is not None and math.isfinite(time_s) and time_s > 0 else None


def excerpt(text: str) -> str:
    """A short excerpt of a response, in one line of printable characters."""
    plain = outside_text(text)
    return f'"{plain[:_EXCERPT_CHARS]}{"…" if len(plain) > _EXCERPT_CHARS else ""}"'
