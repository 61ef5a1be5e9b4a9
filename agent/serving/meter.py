"""A service's meter: reads its servers now and then, and says what was served in each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from agent.config_service import ServiceConfig
from agent.costing.served import Counts, Measure, ServedWindow
from agent.model import NS_PER_S
from agent.serving.errors import ScrapeError
from agent.serving.exposition import parse_exposition
from agent.serving.increase import CounterHistory, Increases, Step
from agent.serving.named import ModelNames
from agent.serving.reading import Reading, engine_of, read_counters, wanted_names

MAX_AT_ONCE = 8
MAX_PROBLEMS = 8
# More beginnings than that in a window are no restarts that could be counted across.
MAX_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Scrape:
    """How reading a service's servers went.

    Attributes:
        problems: What was wrong, with the address it was at; empty if nothing.
        missing: Counters that a server should have and has not.
        restarted: Whether a server's counters began anew.
    """

    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    restarted: bool = False


@dataclass(slots=True)
class _Window:
    """What is known of the window that is open."""

    start_ns: int = 0
    increases: Increases = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    unknown: set[Measure] = field(default_factory=set)
    seen: set[Measure] = field(default_factory=set)
    restarts: int = 0
    readings: int = 0


class ServiceMeter:
    """Counts what one service serves; not to be used by two threads at once.

    A window lasts from the reading that closed the one before to the reading that closes it. It is
    complete if all of a service's servers could be read each time, at both its edges above all.

    Args:
        service: The service.
        fetch: Reads an address; raises ScrapeError.
        now_ns: CLOCK_MONOTONIC ns.
        utc_ns: UTC ns, by which the servers say when a counter began.
        known: Served models that have series already, and UTC in ns of their newest rows.
    """

    def __init__(
        self,
        service: ServiceConfig,
        fetch: Callable[[str], bytes],
        now_ns: Callable[[], int],
        utc_ns: Callable[[], int],
        known: Mapping[str, int] | None = None,
    ) -> None:
        self._service = service
        self._engine = engine_of(service)
        self._wanted = wanted_names(self._engine)
        self._fetch = fetch
        self._now_ns = now_ns
        self._utc_ns = utc_ns
        self._names = ModelNames(utc_ns, known)
        self._histories = {
            url: CounterHistory(counts_begin_at_zero=self._engine.counts_begin_at_zero)
            for url in service.url
        }
        self._window: _Window | None = None

    def scrape(self) -> Scrape:
        """Reads all servers once and adds what was counted to the open window."""
        return self._scraped(self._now_ns())

    def close_window(self) -> ServedWindow:
        """Reads all servers once more and says what was served since the last window's end."""
        now_ns = self._now_ns()
        is_first = self._window is None
        scrape = self._scraped(now_ns)
        window = self._window or _Window(start_ns=now_ns)
        if is_first:
            window.problems["nothing was read before its end"] = None
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
            # What was counted before this edge will be found behind it.
            self._window.problems["its beginning could not be read"] = None
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
            problems += [f"{url}: {told}" for told in step.problems]
            missing += [f"{url}: {told}" for told in outcome.missing]
            restarted = restarted or step.restarted
            _add(window, outcome, step, self._engine.counters, self._names)
        if window.restarts > MAX_RESTARTS:
            problems.append(
                f"counters began anew more than {MAX_RESTARTS} times: does it crash in a loop, or do"
                " several processes answer at one address?"
            )
        for told in problems[: MAX_PROBLEMS - len(window.problems)]:
            window.problems[told] = None
        for told in missing[: MAX_PROBLEMS - len(window.missing)]:
            window.missing[told] = None
        return Scrape(tuple(problems), tuple(missing), restarted)

    def _read_all(self) -> list[Reading | ScrapeError]:
        urls = self._service.url
        if len(urls) == 1:
            return [self._read(urls[0])]
        with ThreadPoolExecutor(min(MAX_AT_ONCE, len(urls))) as pool:
            return list(pool.map(self._read, urls))

    def _read(self, url: str) -> Reading | ScrapeError:
        try:
            exposition = parse_exposition(self._fetch(url), self._wanted, self._engine.prefix)
            return read_counters(
                exposition, self._engine, self._service.models, self._service.model or ""
            )
        except ScrapeError as error:
            return error


def _add(
    window: _Window,
    reading: Reading,
    step: Step,
    measures: Iterable[Measure],
    names: ModelNames,
) -> None:
    window.readings += 1
    window.restarts += step.restarted
    window.seen.update(reading.measures)
    window.unknown.update(measure for measure in measures if measure not in reading.measures)
    for (measure, model), grown in step.increases.items():
        place = (measure, names.name(model))
        window.increases[place] = window.increases.get(place, 0.0) + grown


def _by_model(window: _Window) -> dict[str, Counts]:
    """The counts of each model; what names no model is a lone model's."""
    known = window.seen - window.unknown
    models = {model for measure, model in window.increases if measure in known}
    named = sorted(models - {""})
    unnamed = named[0] if len(named) == 1 else ""
    found: dict[str, dict[str, float]] = {name: {} for name in named}
    if unnamed == "" and ("" in models or not named):
        found[""] = {}
    for measure in known:
        counted: dict[str, float] = {}
        for (what, model), grown in window.increases.items():
            if what == measure:
                counted[model or unnamed] = counted.get(model or unnamed, 0.0) + grown
        for model, counts in found.items():
            # Where it is counted for no model at all, what each of several had is not known.
            is_told = model in counted or not counted or (model != "" and set(counted) != {""})
            if is_told:
                counts[measure] = counted.get(model, 0.0)
    return {model: Counts(**counts) for model, counts in found.items()}
