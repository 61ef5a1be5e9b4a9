"""The meter of a service: scrapes its servers and counts requests and tokens in each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from costprobe.adapters.serving.counters import Engine
from costprobe.adapters.serving.errors import ScrapeError
from costprobe.adapters.serving.exposition import MAX_PARSE_S, parse_exposition
from costprobe.adapters.serving.increase import CounterHistory, CounterStep, Increases
from costprobe.adapters.serving.model_names import ModelNames
from costprobe.adapters.serving.reading import (
    CounterReading,
    engine_of,
    read_counters,
    wanted_names,
)
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.core.records import NS_PER_S
from costprobe.core.serving_words import Measure
from costprobe.domain.costing.serving.served import Counts, ServedWindow

MAX_AT_ONCE = 8
MAX_PROBLEMS = 8
# Share of one core for parsing, and its bounds for one response in s.
PARSE_SHARE = 0.02
MIN_PARSE_S = 0.05
# With more resets in a window, counts across them are unreliable.
MAX_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Scrape:
    """The outcome of scraping a service's servers.

    Attributes:
        problems: Failures, each with its URL.
        missing: Required counters that a server does not expose, each with its URL.
        restarted: Whether a server's counters were reset.
    """

    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    restarted: bool = False


@dataclass(slots=True)
class _Window:
    """The open window."""

    start_ns: int = 0
    increases: Increases = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    unknown: set[Measure] = field(default_factory=set)
    counted: set[Measure] = field(default_factory=set)
    restarts: int = 0
    readings: int = 0


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
        self._engine = engine or engine_of(service)
        self._wanted = wanted_names(self._engine)
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
        restarted = False
        for url, outcome in zip(self._service.url, self._read_all(), strict=True):
            if isinstance(outcome, ScrapeError):
                problems.append(f"{url}: {outcome}")
                continue
            step = self._histories[url].take(outcome, utc_s)
            problems += [f"{url}: {problem}" for problem in step.problems]
            missing += [f"{url}: {counter}" for counter in outcome.missing]
            restarted = restarted or step.restarted
            _add(window, outcome, step, self._engine.counters, self._names)
        if window.restarts > MAX_RESTARTS:
            problems.append(
                f"more than {MAX_RESTARTS} counter resets: does the server crash in a loop, or do"
                " several processes share one address?"
            )
        for problem in problems[: MAX_PROBLEMS - len(window.problems)]:
            window.problems[problem] = None
        for counter in missing[: MAX_PROBLEMS - len(window.missing)]:
            window.missing[counter] = None
        return Scrape(tuple(problems), tuple(missing), restarted)

    def _read_all(self) -> list[CounterReading | ScrapeError]:
        urls = self._service.url
        if len(urls) == 1:
            return [self._read(urls[0])]
        with ThreadPoolExecutor(min(MAX_AT_ONCE, len(urls))) as pool:
            return list(pool.map(self._read, urls))

    def _read(self, url: str) -> CounterReading | ScrapeError:
        try:
            exposition = parse_exposition(
                self._fetch(url), self._wanted, self._engine.prefix, self._max_parse_s
            )
            return read_counters(
                exposition, self._engine, self._service.models, self._service.model or ""
            )
        except ScrapeError as error:
            return error


def _add(
    window: _Window,
    reading: CounterReading,
    step: CounterStep,
    measures: Iterable[Measure],
    names: ModelNames,
) -> None:
    window.readings += 1
    window.restarts += step.restarted
    window.counted.update(reading.measures)
    window.unknown.update(measure for measure in measures if measure not in reading.measures)
    for (measure, model), grown in step.increases.items():
        place = (measure, names.name(model))
        window.increases[place] = window.increases.get(place, 0.0) + grown


def _by_model(window: _Window) -> dict[str, Counts]:
    """Counts by model; series without a model belong to the only named model, if there is one."""
    known = window.counted - window.unknown
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
