"""The Prometheus text format, of which only the wanted counters are looked at.

A server is not trusted: what it sends has bounds in bytes, in the length of a line, in the number
of series; and a counter is a number from zero up, there once.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from agent.serving.errors import ScrapeError

MAX_BYTES = 8 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_LINES = 200_000
MAX_SERIES = 2000
MAX_SERIES_CHARS = 2048
# Beyond it no counter that was counted up could be; and a double no longer counts in ones.
MAX_VALUE = 1e18
STARTED = "process_start_time_seconds"
_EXCERPT_CHARS = 60
_SUFFIXES = ("_total", "_sum", "_count")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series.

    Attributes:
        labels: Names and values, ordered by name.
        value: As written.
        created_s: UTC in s at which the series began, where the server says so.
    """

    labels: Labels
    value: float
    created_s: float | None


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a server exposes of the wanted counters.

    Attributes:
        samples: Their values, by metric name as written.
        types: Types of the wanted metrics that it declares, by metric name without a suffix.
        started_s: UTC in s at which the process began; None where it does not say.
        names: The prefix that was asked for, where a metric's name begins so.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    types: Mapping[str, str]
    started_s: float | None
    names: frozenset[str]


def family_of(name: str) -> str:
    """The name under which the family of a metric is declared, whatever its kind."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def parse_exposition(body: bytes, wanted: Collection[str], prefix: str = "") -> Exposition:
    """Reads the wanted counters out of an exposition.

    Args:
        body: What the server sent.
        wanted: Names of metrics.
        prefix: What to say of it whether any metric's name begins so.

    Raises:
        ScrapeError: It is no exposition, or says of a wanted counter what none can be.
    """
    collected = _Collected(wanted, prefix)
    for number, line in enumerate(_lines(body), start=1):
        if line.startswith("#"):
            collected.declare(line)
        elif line:
            collected.add(line, number)
    return collected.exposition()


class _Collected:
    """What was found so far."""

    def __init__(self, wanted: Collection[str], prefix: str) -> None:
        self._wanted = wanted
        self._prefix = prefix
        self._families = {family_of(name) for name in wanted}
        self._created_names = {f"{family}_created": family for family in self._families}
        self._types: dict[str, str] = {}
        self._found: dict[str, dict[Labels, float]] = {}
        self._created: dict[tuple[str, Labels], float] = {}
        self._started_s: float | None = None
        self._prefix_seen = False
        self._series = 0

    def declare(self, line: str) -> None:
        """Takes a line that begins with "#"."""
        declared = _declared(line)
        if declared is not None:
            name, kind = declared
            self._look(name)
            if family_of(name) in self._families:
                self._types[family_of(name)] = kind

    def add(self, line: str, number: int) -> None:
        """Takes a line with a value."""
        name = line[: _name_end(line)]
        self._look(name)
        if name in self._wanted:
            labels, value = _sample(line, number)
            series = self._found.setdefault(name, {})
            if labels in series:
                raise ScrapeError(f"line {number}: {name} is there twice with the same labels")
            series[labels] = _counted(name, value, number)
            self._count()
        elif name in self._created_names:
            labels, value = _sample(line, number)
            self._created[self._created_names[name], labels] = value
            self._count()
        elif name == STARTED:
            self._started_s = _sample(line, number)[1]

    def exposition(self) -> Exposition:
        """All that was found."""
        samples = {
            name: tuple(
                Sample(labels, value, _instant(self._created.get((family_of(name), labels))))
                for labels, value in series.items()
            )
            for name, series in self._found.items()
        }
        names = frozenset({self._prefix} if self._prefix_seen else ())
        return Exposition(samples, self._types, _instant(self._started_s), names)

    def _look(self, name: str) -> None:
        if self._prefix and not self._prefix_seen:
            self._prefix_seen = name.startswith(self._prefix)

    def _count(self) -> None:
        self._series += 1
        if self._series > MAX_SERIES:
            raise ScrapeError(f"more than {MAX_SERIES} series of the counters that count here")


def _lines(body: bytes) -> Iterator[str]:
    """The lines, one by one: a list of them would weigh ten times as much as they do."""
    if len(body) > MAX_BYTES:
        raise ScrapeError(f"its answer has more than {MAX_BYTES} bytes")
    if body and not body.endswith(b"\n"):
        # Half a number is a smaller number: it would be taken for a counter that began anew.
        raise ScrapeError("its answer breaks off within a line, or is no Prometheus metrics")
    for number, line in enumerate(io.BytesIO(body)):
        if number >= MAX_LINES:
            raise ScrapeError(f"its answer has more than {MAX_LINES} lines")
        if len(line) > MAX_LINE_BYTES:
            raise ScrapeError(f"a line of its answer has more than {MAX_LINE_BYTES} bytes")
        try:
            yield line.decode().strip()
        except UnicodeDecodeError:
            # Without the cause: its text would hold what was received.
            raise ScrapeError("its answer is no UTF-8 text, so no Prometheus metrics") from None


def _declared(line: str) -> tuple[str, str] | None:
    """Name and type of a line `# TYPE name type`."""
    words = line.split(None, 4)
    return (words[2], words[3]) if len(words) >= 4 and words[1] == "TYPE" else None  # noqa: PLR2004 - as the docstring has it


def _name_end(line: str) -> int:
    ends = (line.find(mark) for mark in "{ \t")
    return min((end for end in ends if end >= 0), default=len(line))


def _sample(line: str, number: int) -> tuple[Labels, float]:
    """Labels and value of a line."""
    # Here, and not at the top: a daemon without a service shall not carry it.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    if len(line) > MAX_SERIES_CHARS:
        raise ScrapeError(f"line {number}: more than {MAX_SERIES_CHARS} characters for one series")
    try:
        (family,) = text_string_to_metric_families(line + "\n")
        (sample,) = family.samples
        value = float(sample.value)
    except (ValueError, LookupError, TypeError, OverflowError):
        # Without the cause: its text would hold the line.
        raise ScrapeError(
            f"line {number} is not as Prometheus writes it: {excerpt(line)}"
        ) from None
    return tuple(sorted(sample.labels.items())), value


def _counted(name: str, value: float, number: int) -> float:
    if not math.isfinite(value) or value < 0 or value > MAX_VALUE:
        raise ScrapeError(f"line {number}: {name} is {value:g}, which no counter can be")
    return value


def _instant(time_s: float | None) -> float | None:
    return time_s if time_s is not None and math.isfinite(time_s) and time_s > 0 else None


def excerpt(text: str) -> str:
    """What a server said, short, in one line and in plain characters."""
    plain = "".join(mark if mark.isprintable() else "?" for mark in text[:_EXCERPT_CHARS])
    return f'"{plain}{"…" if len(text) > _EXCERPT_CHARS else ""}"'
