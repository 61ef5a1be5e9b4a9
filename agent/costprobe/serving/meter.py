"""Requests and tokens that a service served in a window, from the counters of its servers.

Counters increase per series, then are summed. A series whose value fell, or whose creation time
moved, was reset: its whole value was counted since, and that of each series which is only reset
together with it. A series that is new counts from zero if the process restarted, if its creation
time is after the last reading, or if the engine creates series with their first count; otherwise
its first value is the baseline, because what it counted before is unknown. What is unknown makes a
window incomplete and is never counted as work.

Several processes may share an address, of which each reading shows one. They show by a process or
series that began before the last reading of another, by values of before a rise or a fall, or by
more counts after a fall than the server was ever seen to make in that time: of a window in which
that happens nothing is counted.

The counters of a service's tenants are read as those of an engine whose "models" are tenants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean
from typing import Final, NamedTuple

from costprobe.adapters.engines.exposition import MAX_PARSE_S, ScrapeError
from costprobe.adapters.engines.scrape import (
    CounterReading,
    ModelNames,
    SeriesKey,
    SeriesValue,
    engine_of,
    generic_engine,
    read_counters,
)
from costprobe.adapters.engines.settings import CountersConfig
from costprobe.adapters.engines.tables import ENGINES, Counter, Engine, Gauge, ResetGroup
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import MEASURES, UNATTRIBUTED, Measure
from costprobe.core.slo import SloShare, figure_of
from costprobe.serving.settings import REQUEST_KEYS, ServiceConfig, TenantsConfig

MAX_GONE = 2000
# Start times are derived from ticks since boot (1/100 s) and a wall clock in whole s.
_TICK_S = 0.02
_WALL_CLOCK_S = 1.0
# Readings in which one of several processes may answer alone by chance.
_SHARED_READINGS = 20
_SHARED = (
    "several processes share this address, and each reading shows the counters of one: give each"
    " replica its own url, or let the server run with one worker"
)
_IMPLAUSIBLE = (
    "counters fell, and show more than the server can have counted since: several processes share"
    " this address (give each replica its own url), or the counters of one of its workers were removed"
)
_RESETS = (
    "more than {} counter resets in {} readings: does the server crash in a loop, or do several"
    " processes share one address?"
)
# A restarted server counts at most so many times as fast as ever before.
_FASTER = 3.0
# Shorter times between readings do not show a rate, in s.
_RATE_S = 1.0
# Further readings at once, where only counts can show several processes.
_MORE_READINGS = 4

# Counts by measure, or bound of a service level, and model.
Increases = dict[tuple[str, str], float]
MAX_AT_ONCE = 8
MAX_PROBLEMS = 8
# Share of one core for parsing, and its bounds for one response in s.
PARSE_SHARE = 0.02
MIN_PARSE_S = 0.05
# With more resets in _SHARED_READINGS, counts across them are unreliable.
MAX_RESTARTS = 3
_TOKENS: Final[tuple[Measure, ...]] = ("tokens_in", "tokens_out")
_COUNTED: Final[tuple[Measure, ...]] = (*_TOKENS, "cached_tokens", "requests")
_JUDGED: Final[tuple[Measure, ...]] = (*_COUNTED, "inferences")
# LiteLLM writes a request without a team, user or key with this value of the label.
_ABSENT: Final = frozenset({"", "None", UNATTRIBUTED})


@dataclass(frozen=True, slots=True)
class CounterStep:
    """The changes between two readings of a server.

    Attributes:
        increases: Counts by measure and model.
        problems: Why the counts may be incomplete.
        restarted: Whether a counter was reset.
        is_doubtful: Whether also the counts since the beginning of the window are unknown.
        is_unsure: Whether only further readings can show if several processes share the address.
    """

    increases: Increases = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    restarted: bool = False
    is_doubtful: bool = False
    is_unsure: bool = False


class CounterHistory:
    """One server's counters at its last successful reading.

    Args:
        counts_begin_at_zero: Whether the engine creates a series with its first count.
        reset_together: Which of its series are only reset together.
    """

    def __init__(self, *, counts_begin_at_zero: bool, reset_together: ResetGroup = "none") -> None:
        self._counts_begin_at_zero = counts_begin_at_zero
        self._reset_together = reset_together
        self._last: CounterReading | None = None
        self._last_utc_s = 0.0
        self._newest_s = 0.0
        self._gone: dict[SeriesKey, SeriesValue] = {}
        self._doubtful_readings = 0
        self._doubt = _SHARED
        # The highest rates of counts by measure, per s.
        self._fastest: dict[str, float] = {}
        self._restarts: deque[bool] = deque(maxlen=_SHARED_READINGS)
        # Earlier readings of the present process, and the last one before a fall.
        self._earlier: deque[CounterReading] = deque(maxlen=2)
        self._readings = 0
        self._left: CounterReading | None = None

    def take(self, reading: CounterReading, utc_s: float) -> CounterStep:
        """Take a successful reading; the first one is the baseline.

        Args:
            reading: The server's counters.
            utc_s: UTC in s of the scrape, on the clock of the server's `_created` times.
        """
        last, self._last = self._last, reading
        last_utc_s, self._last_utc_s = self._last_utc_s, utc_s
        if last is None:
            self._newest_s = reading.started_s or 0.0
            return CounterStep(is_unsure=reading.started_s is None)
        newest_s, self._newest_s = self._newest_s, max(self._newest_s, reading.started_s or 0.0)
        falls = _falls(reading, last, self._reset_together)
        is_new_process = _started_apart(reading, last, is_reset=falls.any)
        if _is_shared(reading, last, newest_s, last_utc_s, is_new_process=is_new_process):
            self._begin_doubt(_SHARED)
        elif is_new_process:
            self._doubtful_readings = 0
            self._earlier.clear()
            self._left = None
        elif self._doubtful_readings and falls.any:
            self._doubtful_readings, self._left = _SHARED_READINGS, last
        if self._doubtful_readings == 0:
            step = self._step(reading, last, last_utc_s, falls, is_new_process=is_new_process)
            is_explained = is_new_process or (falls.any and falls.are_explained)
            length_s = utc_s - last_utc_s
            is_unsure = self._judge(reading, last, step, length_s, is_explained=is_explained)
            if self._doubtful_readings == 0:
                self._restarts.append(step.restarted)
                return replace(step, is_unsure=is_unsure and reading.started_s is None)
        self._doubtful_readings -= 1
        self._gone.clear()
        return CounterStep(problems=(self._doubt,), is_doubtful=True)

    def _begin_doubt(self, why: str) -> None:
        self._doubt, self._doubtful_readings = why, _SHARED_READINGS
        # A change of the process may have been read as a rate.
        self._fastest.clear()
        self._earlier.clear()

    def _judge(
        self,
        reading: CounterReading,
        last: CounterReading,
        step: CounterStep,
        length_s: float,
        *,
        is_explained: bool,
    ) -> bool:
        """Begin a doubt if another process seems to have answered than the last time; else learn.

        Returns:
            Whether another one may have answered.
        """
        rates = _rates(step.increases, max(length_s, _RATE_S))
        is_fast = any(
            rate > _FASTER * self._fastest.get(measure, 0.0) for measure, rate in rates.items()
        )
        fell = step.restarted and not is_explained
        before = [*self._earlier] if fell else [self._left] if self._left and is_fast else []
        if step.restarted:
            self._left = last if fell else None
        if any(_continues(reading, one) for one in before):
            self._begin_doubt(_SHARED)
            return True
        if fell and is_fast:
            self._begin_doubt(_IMPLAUSIBLE)
            return True
        if step.restarted:
            self._earlier.clear()
        elif length_s >= _RATE_S:
            for measure, rate in rates.items():
                self._fastest[measure] = max(rate, self._fastest.get(measure, 0.0))
        if not self._earlier or self._readings % _SHARED_READINGS == 0:
            self._earlier.append(reading if step.restarted else last)
        self._readings += 1
        return fell or is_fast

    def _step(
        self,
        reading: CounterReading,
        last: CounterReading,
        since_s: float,
        falls: _Falls,
        *,
        is_new_process: bool,
    ) -> CounterStep:
        """Return the changes between two readings, if they are of one process or its successor."""
        vanished = _vanished(reading, last)
        if self._reset_together == "process":
            is_new_process = is_new_process or falls.any or bool(vanished)
        restarted = is_new_process or falls.all
        if restarted:
            self._gone.clear()
        reset_models = _reset_models(reading, last) if self._reset_together == "model" else set()
        changed = [] if restarted else _changed(reading, last)
        problems = [
            f"{name} is counted by {reading.measures[name].counter} now" for name in changed
        ]
        returned = {key: self._gone.pop(key) for key in list(self._gone) if key in reading.series}
        problems += [
            f"a series of {key[1]} disappeared for a while"
            for key, was in returned.items()
            if not _was_reset(reading.series[key], was)
        ]
        known = {**returned, **last.series}
        from_zero = restarted or self._counts_begin_at_zero
        increases: Increases = {}
        for key, now in reading.series.items():
            if key[0] in changed:
                continue
            was = known.get(key)
            if was is None:
                is_young = now.created_s is not None and now.created_s > since_s
                grown = now.value if from_zero or is_young else 0.0
            elif falls.sums_continue and _is_sum(key[1]) and key not in returned:
                grown = max(0.0, now.value - was.value)
            else:
                is_reset = is_new_process or now.model in reset_models or _was_reset(now, was)
                grown = now.value if is_reset else now.value - was.value
            place = key[0], now.model
            increases[place] = increases.get(place, 0.0) + grown
        if not restarted:
            problems += [f"a series of {key[1]} disappeared" for key in vanished]
            self._gone |= islice(vanished.items(), MAX_GONE - len(self._gone))
        restarted = restarted or falls.any
        if sum(self._restarts) + restarted > MAX_RESTARTS:
            problems.append(_RESETS.format(MAX_RESTARTS, _SHARED_READINGS))
        return CounterStep(increases, tuple(dict.fromkeys(problems)), restarted)


def _reset_models(reading: CounterReading, last: CounterReading) -> set[str]:
    """Return the served models of which a series was reset."""
    return {now.model for _, now, was in _common(reading, last) if _was_reset(now, was)}


def _changed(reading: CounterReading, last: CounterReading) -> list[str]:
    """Return the measures that are read from another counter, which may have counted the same."""
    return [
        measure
        for measure, counted in reading.measures.items()
        if (before := last.measures.get(measure)) is not None
        and before.series
        and before.counter != counted.counter
    ]


def _started_apart(reading: CounterReading, last: CounterReading, *, is_reset: bool) -> bool:
    """Return whether two readings have different process start times."""
    if reading.started_s is None or last.started_s is None:
        return False
    apart_s = abs(reading.started_s - last.started_s)
    # A wall clock in whole seconds flips by one.
    may_be_same = abs(apart_s - _WALL_CLOCK_S) <= _TICK_S and not is_reset
    return apart_s > _TICK_S and not may_be_same


def _is_shared(
    reading: CounterReading,
    last: CounterReading,
    newest_s: float,
    since_s: float,
    *,
    is_new_process: bool,
) -> bool:
    """Return whether another process answered that ran already at the last reading.

    Args:
        reading: The counters.
        last: Those of the last reading.
        newest_s: UTC in s of the latest start of a process that was read.
        since_s: UTC in s of the last reading.
        is_new_process: Whether the start times differ.
    """
    if is_new_process:
        # The start times of one host agree with each other; with a clock they do to a second.
        earliest_s = max(newest_s, since_s - _WALL_CLOCK_S - _TICK_S)
        return (reading.started_s or 0.0) <= earliest_s
    return any(
        value.created_s is not None
        and now.created_s is not None
        and value.created_s != now.created_s <= since_s
        for key, value in last.series.items()
        if (now := reading.series.get(key)) is not None
    )


def _was_reset(value: SeriesValue, before: SeriesValue) -> bool:
    return value.value < before.value or _is_created_later(value, before)


def _is_created_later(value: SeriesValue, before: SeriesValue) -> bool:
    return (
        value.created_s is not None
        and before.created_s is not None
        and value.created_s > before.created_s
    )


def _is_sum(counter: str) -> bool:
    return counter.endswith("_sum")


def _common(
    reading: CounterReading, last: CounterReading
) -> list[tuple[str, SeriesValue, SeriesValue]]:
    """Return the series with a count that both readings show: counter, value now, and before."""
    now = reading.series
    return [
        (key[1], now[key], value)
        for key, value in last.series.items()
        if value.value > 0 and key in now
    ]


class _Falls(NamedTuple):
    """The series with a count that were reset between two readings.

    Attributes:
        any: Whether some were.
        all: Whether all were.
        are_explained: Whether all of them show a later time of creation.
        sums_continue: Whether a sum of a histogram that is lower was not reset.
    """

    any: bool
    all: bool
    are_explained: bool
    sums_continue: bool


def _falls(reading: CounterReading, last: CounterReading, group: ResetGroup) -> _Falls:
    """Return what was reset; a sum that fell alone had a negative observation."""
    common = _common(reading, last)
    others = [pair for name, *pair in common if not _is_sum(name)]
    sums_continue = group == "none" and bool(others) and not any(_was_reset(*p) for p in others)
    pairs = others if sums_continue else [pair for _, *pair in common]
    reset = [pair for pair in pairs if _was_reset(*pair)]
    return _Falls(
        bool(reset),
        bool(reset) and len(reset) == len(pairs),
        all(_is_created_later(*pair) for pair in reset),
        sums_continue,
    )


def _continues(reading: CounterReading, earlier: CounterReading) -> bool:
    """Return whether a reading may be a later one of the same process: nothing that counted fell."""
    pairs = [pair for name, *pair in _common(reading, earlier) if not _is_sum(name)]
    return bool(pairs) and not any(_was_reset(*pair) for pair in pairs)


def _rates(increases: Increases, length_s: float) -> dict[str, float]:
    """Return the counts per s of the measures that are judged."""
    rates: dict[str, float] = {}
    for (measure, _), grown in increases.items():
        if measure in _JUDGED:
            rates[measure] = rates.get(measure, 0.0) + grown / length_s
    return rates


def _vanished(reading: CounterReading, last: CounterReading) -> dict[SeriesKey, SeriesValue]:
    """Return the series of the last reading that are no longer exposed."""
    return {
        key: value
        for key, value in last.series.items()
        if key not in reading.series
        and ((now := reading.measures.get(key[0])) is None or now.counter == key[1])
    }


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a window; None if the server has no counter.

    Attributes:
        requests: Completed requests.
        errors: Failed or cancelled requests.
        inferences: Inferred items, if a request may contain several.
        tokens_in: Prompt tokens, cached ones included.
        tokens_out: Generated tokens.
        cached_tokens: The part of tokens_in that was found in a cache.
        prefill_s: Device seconds of prefill: a batch counts once.
        decode_s: Device seconds of decode.
        compute_s: Device seconds of compute, where prefill and decode are not separated.
        decode_request_s: Seconds of decode summed over requests: a batch of 32 counts 32 times.
        compute_request_s: Seconds of compute summed over requests.
        executions: Executions of batches.
        estimated_flop: Floating-point operations of one GPU of each engine, as the server estimates.
        estimated_bytes: Bytes that one GPU of each engine read and wrote, likewise.
        kv_transfer_bytes: Bytes of KV cache that a disaggregated server transferred.
        kv_transfer_s: Seconds of these transfers, summed over transfers.
        kv_transfer_failures: Failed transfers.
    """

    requests: float | None = None
    errors: float | None = None
    inferences: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    cached_tokens: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    compute_s: float | None = None
    decode_request_s: float | None = None
    compute_request_s: float | None = None
    executions: float | None = None
    estimated_flop: float | None = None
    estimated_bytes: float | None = None
    kv_transfer_bytes: float | None = None
    kv_transfer_s: float | None = None
    kv_transfer_failures: float | None = None

    @property
    def fresh_tokens(self) -> float | None:
        """Prompt tokens that were computed; all of them if cached ones are not counted."""
        if self.tokens_in is None:
            return None
        return max(0.0, self.tokens_in - (self.cached_tokens or 0.0))

    @property
    def inferred(self) -> float | None:
        """Inferred items; requests if the server has no finer counter."""
        return self.requests if self.inferences is None else self.inferences

    @property
    def work_s(self) -> float | None:
        """Device seconds of all work; None where the server does not measure them."""
        known = [
            duration_s
            for duration_s in (self.prefill_s, self.decode_s, self.compute_s)
            if duration_s is not None
        ]
        is_half = (self.prefill_s is None) != (self.decode_s is None)
        return sum(known) if known and not is_half else None

    @property
    def execution_s(self) -> float | None:
        """Estimated device seconds: executions, each as long as a request computes on average.

        It is exact if the length of an execution does not depend on the number of its requests, of
        which it has at least one.
        """
        if self.compute_request_s is None or self.executions is None or self.requests is None:
            return None
        executed = min(1.0, self.executions / self.requests) if self.requests else 0.0
        return self.compute_request_s * executed


@dataclass(frozen=True, slots=True)
class ServedWindow:
    """Requests and tokens of a service between two instants.

    Attributes:
        service: Name of the service.
        engine: Name of its engine.
        start_ns: CLOCK_MONOTONIC ns of the scrape that started the window; 0 if there was none.
        end_ns: CLOCK_MONOTONIC ns of the scrape that ended it.
        models: Counts by served model; "" for counts that the server attributes to no model.
        problems: Reasons why the counts may be incomplete; empty for a complete window.
        missing: Expected counters that the server lacks.
        restarts: Scrapes at which a counter had been reset.
        readings: Successful scrapes.
        gauges: Mean saturation of its servers over the scrapes, as far as it is known.
        slo: Requests within each bound of its service level that is known.
        tenants: Counts of the same time by tenant, in place of models; None without any.
    """

    service: str
    engine: str
    start_ns: int
    end_ns: int
    models: Mapping[str, Counts]
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    restarts: int = 0
    readings: int = 0
    gauges: Mapping[Gauge, float] = field(default_factory=dict)
    slo: tuple[SloShare, ...] = ()
    tenants: ServedWindow | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the counts cover the whole window."""
        return not self.problems

    @property
    def total(self) -> Counts:
        """Sum of the counts of all models."""
        return summed(list(self.models.values()))


def summed(counts: Sequence[Counts]) -> Counts:
    """Return the sum of counts; None for counts that are unknown for all."""
    sums: dict[str, float] = {}
    for measure in MEASURES:
        values = [getattr(model_counts, measure) for model_counts in counts]
        known_values = [value for value in values if value is not None]
        if known_values:
            sums[measure] = sum(known_values)
    return Counts(**sums)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The outcome of scraping a service's servers.

    Attributes:
        problems: Failures, each with its URL.
        missing: Required counters that a server does not expose, each with its URL.
    """

    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(slots=True)
class _Window:
    """The open window."""

    start_ns: int = 0
    increases: Increases = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    restarts: int = 0
    readings: int = 0
    gauges: dict[Gauge, list[float]] = field(default_factory=dict)
    edges_s: dict[str, float] = field(default_factory=dict)


class ServiceMeter:
    """Counts the requests and tokens of one service; for one thread at a time.

    A window lasts from the scrape that closed the previous one to the scrape that closes it. It is
    complete if each scrape of each of the service's servers succeeded, at both its edges too.

    Args:
        service: The service.
        fetch: Fetches a URL; raises ScrapeError.
        now_ns: CLOCK_MONOTONIC ns.
        utc_ns: UTC ns, on the clock of the servers' creation times.
        names: Bounds the names of served models.
        engine: Its counters, if they are not those of the service's engine.
    """

    def __init__(
        self,
        service: ServiceConfig,
        fetch: Callable[[str], bytes],
        now_ns: Callable[[], int],
        utc_ns: Callable[[], int],
        names: ModelNames | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._service = service
        self._bounds_ms = {} if engine or service.slo is None else service.slo.bounds_ms
        self._engine = engine or judging_engine(service)
        self._fetch = fetch
        self._now_ns = now_ns
        self._utc_ns = utc_ns
        self._names = names or ModelNames(utc_ns)
        self._histories = {
            url: CounterHistory(
                counts_begin_at_zero=self._engine.counts_begin_at_zero,
                reset_together=self._engine.reset_together,
            )
            for url in service.url
        }
        self._window: _Window | None = None
        self._max_parse_s = max(MIN_PARSE_S, min(MAX_PARSE_S, PARSE_SHARE * service.every_s))

    def scrape(self) -> Scrape:
        """Scrape all servers and add the counts to the open window."""
        return self._scraped(self._now_ns())

    def close_window(self) -> ServedWindow:
        """Scrape all servers and close the window; the next one begins."""
        now_ns = self._now_ns()
        is_first = self._window is None
        scrape = self._scraped(now_ns)
        window = self._window or _Window(start_ns=now_ns)
        if is_first:
            window.problems["no scrape before its end"] = None
        closed = ServedWindow(
            service=self._service.name,
            engine=self._service.engine,
            start_ns=window.start_ns,
            end_ns=now_ns,
            models=_by_model(window),
            problems=tuple(window.problems),
            missing=tuple(window.missing),
            restarts=window.restarts,
            readings=window.readings,
            gauges={
                gauge: fmean(values) * (len(self._histories) if gauge == "requests_waiting" else 1)
                for gauge, values in window.gauges.items()
            },
            slo=_within(window, self._bounds_ms),
        )
        self._window = _Window(start_ns=now_ns, missing=dict.fromkeys(scrape.missing))
        if scrape.problems:
            # Counts from before this edge will appear after it.
            self._window.problems["the scrape at its beginning failed"] = None
        return closed

    def _scraped(self, now_ns: int) -> Scrape:
        if self._window is None:
            self._window = _Window(start_ns=now_ns)
        window = self._window
        utc_s = self._utc_ns() / NS_PER_S
        problems: list[str] = []
        missing: list[str] = []
        with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
            firsts = list(pool.map(self._read, self._service.url))
        for url, first in zip(self._service.url, firsts, strict=True):
            if not isinstance(first, ScrapeError):
                window.readings += 1
                for gauge, value in first.gauges.items():
                    window.gauges.setdefault(gauge, []).append(value)
            outcomes = [first]
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, ScrapeError):
                    problems.append(f"{url}: {outcome}")
                    continue
                step = self._histories[url].take(outcome, utc_s)
                problems += [f"{url}: {problem}" for problem in step.problems]
                missing += [f"{url}: {counter}" for counter in outcome.missing]
                _add(window, outcome, step, self._engine.counters, self._names)
                if step.is_unsure and number == 0:
                    outcomes += [self._read(url) for _ in range(_MORE_READINGS)]
        problems, missing = list(dict.fromkeys(problems)), list(dict.fromkeys(missing))
        for problem in problems[: MAX_PROBLEMS - len(window.problems)]:
            window.problems[problem] = None
        for counter in missing[: MAX_PROBLEMS - len(window.missing)]:
            window.missing[counter] = None
        return Scrape(tuple(problems), tuple(missing))

    def _read(self, url: str) -> CounterReading | ScrapeError:
        try:
            models, unnamed = self._service.models, self._service.model or ""
            return read_counters(self._fetch(url), self._engine, models, unnamed, self._max_parse_s)
        except ScrapeError as error:
            return error


def _add(
    window: _Window,
    reading: CounterReading,
    step: CounterStep,
    measures: Iterable[str],
    names: ModelNames,
) -> None:
    window.restarts += step.restarted
    if step.is_doubtful:
        window.increases.clear()
    window.counted.update(reading.measures)
    window.unknown.update(measure for measure in measures if measure not in reading.measures)
    for measure, counted in reading.measures.items():
        if (edge_s := counted.edge) is not None:
            window.edges_s[measure] = min(edge_s, window.edges_s.get(measure, edge_s))
    # The busiest models first: they get the names, if there are too few.
    for (measure, model), grown in sorted(step.increases.items(), key=lambda item: -item[1]):
        place = (measure, names.name(model, is_used=grown > 0))
        window.increases[place] = window.increases.get(place, 0.0) + grown


def _by_model(window: _Window) -> dict[str, Counts]:
    """Counts by model; series without a model belong to the only named model, if there is one."""
    known = (window.counted - window.unknown) & {*MEASURES}
    models = {model for measure, model in window.increases if measure in known}
    names = sorted(models - {""})
    unnamed = names[0] if len(names) == 1 else ""
    by_model: dict[str, dict[str, float]] = {name: {} for name in names}
    if unnamed == "" and ("" in models or not names):
        by_model[""] = {}
    for measure in known:
        counted: dict[str, float] = {}
        for (counted_measure, model), grown in window.increases.items():
            if counted_measure == measure:
                counted[model or unnamed] = counted.get(model or unnamed, 0.0) + grown
        for model, counts in by_model.items():
            # A measure that is counted without model labels cannot be split among several models.
            is_known = model in counted or not counted or (model != "" and set(counted) != {""})
            if is_known:
                counts[measure] = counted.get(model, 0.0)
    return {model: Counts(**counts) for model, counts in by_model.items()}


def _within(window: _Window, bounds_ms: Mapping[str, float]) -> tuple[SloShare, ...]:
    """Return the counts of each bound that all servers know."""
    sums: dict[str, float] = {}
    for (measure, _), grown in window.increases.items():
        sums[measure] = sums.get(measure, 0.0) + grown
    return tuple(
        SloShare(
            bound,
            sums.get(figure_of(bound), 0.0),
            sums.get(bound, 0.0),
            bound_ms,
            window.edges_s[bound] * 1000,
        )
        for bound, bound_ms in bounds_ms.items()
        if bound in window.edges_s and not window.unknown & {bound, figure_of(bound)}
    )


def judging_engine(service: ServiceConfig) -> Engine:
    """Return the engine of a service, with what its service level counts."""
    engine = engine_of(service)
    return engine if service.slo is None else engine.judging(service.slo.bounds_ms)


def tenants_engine(config: TenantsConfig) -> Engine:
    """Return the counters of tenants; the label of the tenant stands for that of the model.

    A label's value is exposed with its first count, so that a new series counts from zero.
    """
    if config.gateway is None:
        counters = CountersConfig(
            tokens_in=config.tokens_in,
            tokens_out=config.tokens_out,
            cached_tokens=config.cached_tokens,
            requests=config.requests,
            model_label=config.label,
        )
        engine = generic_engine(counters)
        # A gateway may expose cached tokens with the first of them.
        required = tuple(measure for measure in engine.required if measure != "cached_tokens")
        return replace(engine, counts_begin_at_zero=True, required=required)
    engine = ENGINES[config.gateway]
    only = {} if config.models is None else {engine.model_label: config.models}
    return replace(
        engine,
        written={
            measure: tuple(_of_models(counter, only) for counter in engine.counters[measure])
            for measure in _COUNTED
        },
        required=_TOKENS,
        model_label=config.label,
    )


def tenants_endpoint(service: ServiceConfig, config: TenantsConfig) -> ServiceConfig:
    """Return the service with the address and the credentials of its tenants' counters."""
    every = {"models": None, "model": None}
    if config.url is None:
        return service.model_copy(update=every)
    own = {name: getattr(config, name) for name in ("url", *REQUEST_KEYS)}
    return service.model_copy(update={**every, **own})


class TenantNames(ModelNames):
    """The tenants of one service: a bounded number of names, the rest as "other".

    Args:
        config: The number of names.
        utc_ns: UTC ns.
        known: Tenants that already have series, and UTC in ns at which they were last seen.
    """

    def __init__(
        self, config: TenantsConfig, utc_ns: Callable[[], int], known: Mapping[str, int]
    ) -> None:
        named = {name: at_ns for name, at_ns in known.items() if name not in _ABSENT}
        super().__init__(utc_ns, named, config.names)

    def name(self, model: str, *, is_used: bool = True) -> str:
        """Return the name under which a tenant is counted; "unattributed" for none."""
        return UNATTRIBUTED if model in _ABSENT else super().name(model, is_used=is_used)


def _of_models(counter: Counter, only: Mapping[str, tuple[str, ...]]) -> Counter:
    return replace(counter, only={**counter.only, **only})
