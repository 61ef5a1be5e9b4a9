"""Mapping of exposed counters to measures: the series of each measure, or its missing counter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from costprobe.adapters.serving.counters import Counter, Engine
from costprobe.adapters.serving.endpoint import CountersConfig, MetricsEndpoint
from costprobe.adapters.serving.engines import ENGINES
from costprobe.adapters.serving.errors import ScrapeError
from costprobe.adapters.serving.exposition import CounterSample, Exposition, Labels
from costprobe.adapters.serving.setting_types import SELECTOR
from costprobe.adapters.system.outside_text import outside_text
from costprobe.core.serving_words import MEASURES, Measure

MAX_MODEL_CHARS = 200
_LABEL = re.compile(r'([A-Za-z_]\w*)="([^"{}\\]*)"')
_SCALES = (
    (re.compile(r"_(us|microseconds)(_total|_sum)?"), 1e-6),
    (re.compile(r"_(ms|milliseconds)(_total|_sum)?"), 1e-3),
    (re.compile(r"_(ns|nanoseconds)(_total|_sum)?"), 1e-9),
)
_TIMES = ("prefill_s", "decode_s", "compute_s", "decode_request_s", "compute_request_s")


@dataclass(frozen=True, slots=True)
class SeriesValue:
    """The current value of a series.

    Attributes:
        value: Its count, in the measure's unit.
        model: Served model in its labels; "" if they name none.
        created_s: UTC in s at which the series began; None if it is not exposed.
    """

    value: float
    model: str
    created_s: float | None


@dataclass(frozen=True, slots=True)
class MeasureSeries:
    """The series of one measure at one server.

    Attributes:
        counter: Name of the metric.
        series: Its matching series by labels; empty before the first count.
    """

    counter: str
    series: Mapping[Labels, SeriesValue]


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The counters of one server at an instant.

    Attributes:
        measures: Its measures; one that the server does not count is absent.
        missing: Required counters that are not exposed, for messages.
        started_s: UTC in s at which the process started; None if it is not exposed.
    """

    measures: Mapping[Measure, MeasureSeries]
    missing: tuple[str, ...]
    started_s: float | None


def engine_of(endpoint: MetricsEndpoint) -> Engine:
    """Return the engine of a server, or the one that its own counters define."""
    return (
        ENGINES[endpoint.engine] if endpoint.counters is None else generic_engine(endpoint.counters)
    )


def wanted_names(engine: Engine) -> frozenset[str]:
    """Return all metric names under which an engine's counters may be exposed."""
    return frozenset(
        name
        for counters in engine.counters.values()
        for counter in counters
        for counter_part in (counter, *counter.plus)
        for name in aliases(counter_part.name)
    )


def aliases(name: str) -> tuple[str, ...]:
    """Return the names of a counter: with and without `_total`, and with "_" for ":"."""
    bare = name.removesuffix("_total")
    written = (name, bare if name.endswith("_total") else f"{name}_total")
    return tuple(dict.fromkeys((*written, *(alias.replace(":", "_") for alias in written))))


def read_counters(
    exposition: Exposition,
    engine: Engine,
    models: Sequence[str] | None = None,
    unnamed: str = "",
) -> CounterReading:
    """Find an engine's measures among the exposed counters.

    Args:
        exposition: The counters that the server exposes.
        engine: Its counters.
        models: Served models that count; None for all.
        unnamed: Model of series without a model label; "" if none is configured.

    Raises:
        ScrapeError: A required counter is declared as a gauge.
    """
    measures: dict[Measure, MeasureSeries] = {}
    for measure, counters in engine.counters.items():
        counted = _counted(exposition, engine, counters, models, unnamed)
        if counted is not None:
            _check_type(exposition, counted.counter, measure in engine.required)
            measures[measure] = counted
    missing = []
    for measure, counters in engine.counters.items():
        if measure in measures:
            continue
        if _has_counted_nothing(exposition, engine, measures, measure):
            measures[measure] = MeasureSeries(counters[0].name, {})
        elif measure in engine.required:
            missing.append(_missing(measure, counters, exposition, engine))
    missing += _absent_models(exposition, measures, models)
    return CounterReading(measures, tuple(missing), exposition.started_s)


def _counted(
    exposition: Exposition,
    engine: Engine,
    counters: Sequence[Counter],
    models: Collection[str] | None,
    unnamed: str,
) -> MeasureSeries | None:
    """Return the first counter with values, or else the first one that is declared."""
    for counter in counters:
        for name in aliases(counter.name):
            if name in exposition.samples:
                series = _series(exposition, name, counter, engine, unnamed)
                for added in counter.plus:
                    series |= _added(exposition, added, engine, unnamed)
                if models is not None:
                    series = {
                        labels: value
                        for labels, value in series.items()
                        if value.model in models or not _names_model(labels, engine)
                    }
                return MeasureSeries(name, series)
    for counter in counters:
        for name in aliases(counter.name):
            if exposition.type_of(name) is not None:
                return MeasureSeries(name, {})
    return None


def _series(
    exposition: Exposition, name: str, counter: Counter, engine: Engine, unnamed: str
) -> dict[Labels, SeriesValue]:
    """The matching series of an exposed metric."""
    return {
        sample.labels: SeriesValue(
            sample.value * counter.scale,
            _model(sample, engine.model_label) or unnamed,
            sample.created_s,
        )
        for sample in _of_lowest_rank(exposition.samples[name], counter.one_of)
        if _matches(dict(sample.labels), counter)
    }


def _added(
    exposition: Exposition, counter: Counter, engine: Engine, unnamed: str
) -> dict[Labels, SeriesValue]:
    """The series of a counter that is added to another, distinguished from them by its name."""
    for name in aliases(counter.name):
        if name in exposition.samples:
            series = _series(exposition, name, counter, engine, unnamed)
            return {(*labels, ("__name__", name)): value for labels, value in series.items()}
    return {}


def _model(sample: CounterSample, label: str) -> str:
    text = dict(sample.labels).get(label, "") if label else ""
    return outside_text(text, MAX_MODEL_CHARS)


def _names_model(labels: Labels, engine: Engine) -> bool:
    return any(name == engine.model_label and text for name, text in labels)


def _matches(labels: Mapping[str, str], counter: Counter) -> bool:
    return all(labels.get(name) in texts for name, texts in counter.only.items()) and not any(
        labels.get(name) in texts for name, texts in counter.without.items()
    )


def _of_lowest_rank(
    samples: Sequence[CounterSample], ranks: Collection[str]
) -> list[CounterSample]:
    """Return one series of each group of ranks that report the same count."""
    if not ranks:
        return list(samples)
    lowest: dict[Labels, tuple[tuple[tuple[int, str], ...], CounterSample]] = {}
    for sample in samples:
        labels = tuple(label for label in sample.labels if label[0] not in ranks)
        # Numbers are compared by value: "10" is above "9".
        rank = tuple((len(text), text) for name, text in sample.labels if name in ranks)
        if labels not in lowest or rank < lowest[labels][0]:
            lowest[labels] = (rank, sample)
    return [sample for _, sample in lowest.values()]


def _has_counted_nothing(
    exposition: Exposition,
    engine: Engine,
    measures: Mapping[Measure, MeasureSeries],
    measure: Measure,
) -> bool:
    """Return whether a counter is not exposed because it has no count yet."""
    companions: tuple[Measure, ...] = (
        ("tokens_out", "inferences") if measure == "requests" else ("requests",)
    )
    return (
        engine.counts_begin_at_zero
        and engine.prefix in exposition.names
        and not any(
            value.value > 0
            for companion in companions
            if companion in measures
            for value in measures[companion].series.values()
        )
    )


def _check_type(exposition: Exposition, name: str, is_required: bool) -> None:  # noqa: FBT001 - both callers name it
    if exposition.type_of(name) == "gauge" and is_required:
        raise ScrapeError(f"{name} is a gauge; name a counter")


def _missing(
    measure: str, counters: Sequence[Counter], exposition: Exposition, engine: Engine
) -> str:
    names = " or ".join(counter.name for counter in counters)
    if engine.prefix and engine.prefix not in exposition.names:
        return f"{names} ({measure}); no metric begins with {engine.prefix}"
    return f"{names} ({measure})"


def _absent_models(
    exposition: Exposition, measures: Mapping[Measure, MeasureSeries], models: Sequence[str] | None
) -> list[str]:
    """Return configured models without a series, if the server exposes series of others."""
    requests = measures.get("requests")
    if models is None or requests is None or requests.counter not in exposition.samples:
        return []
    present = {value.model for value in requests.series.values()}
    return [f"{requests.counter} of the model {model}" for model in models if model not in present]


def generic_engine(config: CountersConfig) -> Engine:
    """Return the engine of the configured counters."""
    counters: dict[Measure, tuple[Counter, ...]] = {}
    for measure in MEASURES:
        selector = getattr(config, measure)
        if selector is None:
            continue
        match = SELECTOR.fullmatch(selector)
        if match is None:
            raise ScrapeError(f'counters.{measure}: write name or name{{label="value"}}')
        scale = _scale(match[1]) if measure in _TIMES else 1.0
        only = {name: (text,) for name, text in _LABEL.findall(match[2] or "")}
        counters[measure] = (Counter(match[1], only=only, scale=scale),)
    return Engine(
        name="generic",
        counters=counters,
        required=tuple(counters),
        model_label=config.model_label,
    )


def _scale(name: str) -> float:
    """Return seconds per count, by the unit suffix of the name; 1 without a suffix."""
    return next((scale for ending, scale in _SCALES if re.search(f"{ending.pattern}$", name)), 1.0)
