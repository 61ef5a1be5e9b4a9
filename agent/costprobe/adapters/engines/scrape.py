"""Scraping the metrics endpoint of a serving engine: its engine, counters, latency, model names.

One GET with the credentials and limits of the endpoint. The engine is detected by the names of
its counters. Each measure is mapped to its series, or to the counter that is missing.

The latency of a service is the time to first token, or that of a whole request, as its engine
exposes it.

A server chooses the model names in its labels: an adapter for each tenant, a path with a date.
Each name creates new series in every database, so a service has at most MAX_NAMES; the rest are
"other".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

from costprobe.adapters.engines.exposition import (
    EDGE,
    MAX_BYTES,
    MAX_PARSE_S,
    CounterSample,
    Exposition,
    Labels,
    ScrapeError,
    has_name,
    parse_exposition,
    without_edge,
)
from costprobe.adapters.engines.settings import SELECTOR, CountersConfig, MetricsEndpoint
from costprobe.adapters.engines.tables import ENGINES, Counter, Engine, Gauge
from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import Destination, ExchangeLimits, bearer
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import DeliveryError, Hints, HttpResponse, raise_for_status
from costprobe.core.outside import UnusableInputError, bounded_json
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import MEASURES, Measure

MAX_MODEL_CHARS = 200
# An edge and a bound that differ by less are equal.
_ROUNDING: Final = 1e-9
_LABEL = re.compile(r'([A-Za-z_]\w*)="([^"{}\\]*)"')
_UNIT = re.compile(r"_(us|microseconds|ms|milliseconds|ns|nanoseconds)(_total|_sum)?$")
# Seconds, by the first letters of a unit.
_SCALES = {"us": 1e-6, "mic": 1e-6, "ms": 1e-3, "mil": 1e-3, "ns": 1e-9, "nan": 1e-9}
_TIMES = ("prefill_s", "decode_s", "compute_s", "decode_request_s", "compute_request_s")
_OK = 200
_HINTS = Hints(
    unauthorized="check token",
    not_found="check the path, and that metrics are enabled",
)
# Builds of llama-server that answer /metrics while they sleep, without a restart of their idle timer.
READ_ASLEEP_BUILD: Final = 10_519
_BUILD: Final = re.compile(r"b?(\d{1,9})\b")
MAX_NAMES: Final = 64
OTHER: Final = "other"
# A name that was not seen for this time may be replaced, in s.
KEPT_S: Final = 7 * 86_400.0


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

    @property
    def edge(self) -> float | None:
        """Lowest edge of its buckets; None of other counters."""
        edges = [float(text) for labels in self.series for name, text in labels if name == EDGE]
        return min(edges, default=None)


# A measure, or a bound of a service level, the counter, and its labels.
SeriesKey = tuple[str, str, Labels]


@dataclass(frozen=True)
class CounterReading:
    """The counters of one server at an instant.

    Attributes:
        measures: Its measures; one that the server does not count is absent.
        missing: Required counters that are not exposed, for messages.
        started_s: UTC in s at which the process started; None if it is not exposed.
        gauges: Its saturation, as far as it is exposed.
    """

    measures: Mapping[str, MeasureSeries]
    missing: tuple[str, ...]
    started_s: float | None
    gauges: Mapping[Gauge, float] = field(default_factory=dict)

    @cached_property
    def series(self) -> dict[SeriesKey, SeriesValue]:
        """All series of its measures, by measure, counter and labels."""
        return {
            (measure, counted.counter, labels): value
            for measure, counted in self.measures.items()
            for labels, value in counted.series.items()
        }


def engine_of(endpoint: MetricsEndpoint) -> Engine:
    """Return the engine of a server, or the one that its own counters define."""
    return (
        ENGINES[endpoint.engine] if endpoint.counters is None else generic_engine(endpoint.counters)
    )


def _wanted_names(engine: Engine) -> frozenset[str]:
    """Return all metric names under which an engine's counters and gauges may be exposed."""
    return frozenset(
        name
        for counters in (*engine.counters.values(), *engine.gauges.values())
        for counter in counters
        for part in (counter, *counter.plus)
        for name in engine.spellings(part.name)
    )


def read_counters(
    body: bytes,
    engine: Engine,
    models: Sequence[str] | None = None,
    unnamed: str = "",
    max_parse_s: float = MAX_PARSE_S,
) -> CounterReading:
    """Find an engine's measures and gauges on a page.

    Args:
        body: The page, in the Prometheus text format.
        engine: Its counters.
        models: Served models that count; None for all.
        unnamed: Model of series without a model label; "" if none is configured.
        max_parse_s: Longest CPU time of parsing in s.

    Raises:
        ScrapeError: It cannot be parsed, or a required counter is declared as a gauge.
    """
    exposition = parse_exposition(body, _wanted_names(engine), engine.prefixes, max_parse_s)
    measures: dict[str, MeasureSeries] = {}
    for measure, counters in engine.counters.items():
        counted = _counted(exposition, engine, counters, models, unnamed)
        if counted is not None:
            name = counted.counter
            if measure in engine.required and exposition.type_of(name) == "gauge":
                raise ScrapeError(f"{name} is a gauge; name a counter")
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
    gauges: dict[Gauge, float] = {}
    for gauge, counters in engine.gauges.items():
        found = _counted(exposition, engine, counters, models, unnamed)
        values = [] if found is None else [value.value for value in found.series.values()]
        if values:
            gauges[gauge] = fmean(values) if gauge == "kv_cache_share" else math.fsum(values)
    return CounterReading(measures, tuple(missing), exposition.started_s, gauges)


def _counted(
    exposition: Exposition,
    engine: Engine,
    counters: Sequence[Counter],
    models: Collection[str] | None,
    unnamed: str,
) -> MeasureSeries | None:
    """Return the first counter with values, or else the first one that is declared."""
    spellings = [(name, counter) for counter in counters for name in engine.spellings(counter.name)]
    for name, counter in spellings:
        if name in exposition.samples:
            series: dict[Labels, SeriesValue] = {}
            for part in (counter, *counter.plus):
                series |= _series(exposition, part, engine, unnamed)
            if counter.up_to is not None and not series:
                return None  # no edge is that low
            if models is not None:
                series = {
                    labels: value
                    for labels, value in series.items()
                    if value.model in models or not _names_model(labels, engine)
                }
            return MeasureSeries(name, series)
    declared = (name for name, _ in spellings if exposition.type_of(name) is not None)
    return next((MeasureSeries(name, {}) for name in declared), None)


def _series(
    exposition: Exposition, counter: Counter, engine: Engine, unnamed: str
) -> dict[Labels, SeriesValue]:
    """The matching series of an exposed counter, under its name, which distinguishes those that are added."""
    exposed = (name for name in engine.spellings(counter.name) if name in exposition.samples)
    return {
        (*sample.labels, ("__name__", name)): SeriesValue(
            sample.value * counter.scale,
            _model(sample, engine.model_label) or unnamed,
            sample.created_s,
        )
        for name in islice(exposed, 1)
        for sample in _up_to(
            _of_lowest_rank(exposition.samples[name], counter.one_of), counter.up_to
        )
        if _matches(dict(sample.labels), counter)
    }


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


def _up_to(samples: Sequence[CounterSample], largest: float | None) -> Sequence[CounterSample]:
    """Return of each histogram the bucket with the largest edge up to a value; all samples for None."""
    if largest is None:
        return samples
    found: dict[Labels, tuple[float, CounterSample]] = {}
    for sample in samples:
        with suppress(KeyError, ValueError):
            edge = float(dict(sample.labels)[EDGE])
            labels = without_edge(sample.labels)
            is_within = edge <= largest * (1 + _ROUNDING)
            if is_within and (labels not in found or edge > found[labels][0]):
                found[labels] = edge, sample
    return [sample for _, sample in found.values()]


def _has_counted_nothing(
    exposition: Exposition,
    engine: Engine,
    measures: Mapping[str, MeasureSeries],
    measure: str,
) -> bool:
    """Return whether a counter is not exposed because it has no count yet."""
    companions: tuple[Measure, ...] = (
        ("tokens_out", "inferences") if measure == "requests" else ("requests",)
    )
    return (
        engine.counts_begin_at_zero
        and bool(exposition.prefixes)
        and not any(
            value.value > 0
            for companion in companions
            if companion in measures
            for value in measures[companion].series.values()
        )
    )


def _missing(
    measure: str, counters: Sequence[Counter], exposition: Exposition, engine: Engine
) -> str:
    names = " or ".join(
        counter.name + (f" up to {counter.up_to:g} s" if counter.up_to else "")
        for counter in counters
    )
    is_other = engine.prefix and not exposition.prefixes
    return f"{names} ({measure})" + f"; no metric begins with {engine.prefix}" * bool(is_other)


def _absent_models(
    exposition: Exposition, measures: Mapping[str, MeasureSeries], models: Sequence[str] | None
) -> list[str]:
    """Return configured models without a series, if the server exposes series of others."""
    requests = measures.get("requests")
    if models is None or requests is None or requests.counter not in exposition.samples:
        return []
    present = {value.model for value in requests.series.values()}
    return [f"{requests.counter} of the model {model}" for model in models if model not in present]


def generic_engine(config: CountersConfig) -> Engine:
    """Return the engine of the configured counters."""
    counters: dict[str, Counter] = {}
    for measure in MEASURES:
        # What a server estimates has no key.
        selector = getattr(config, measure, None)
        if selector is None:
            continue
        match = SELECTOR.fullmatch(selector)
        if match is None:
            raise ScrapeError(f'counters.{measure}: write name or name{{label="value"}}')
        scale = _scale(match[1]) if measure in _TIMES else 1.0
        only = {name: (text,) for name, text in _LABEL.findall(match[2] or "")}
        counters[measure] = Counter(match[1], only=only, scale=scale)
    label = config.model_label
    return Engine("generic", "", counters, tuple(counters), label, counts_begin_at_zero=False)


def _scale(name: str) -> float:
    """Return seconds per count, by the unit suffix of the name; 1 without a suffix."""
    unit = _UNIT.search(name)
    return 1.0 if unit is None else _SCALES[unit[1][:3]]


def engine_of_page(body: bytes) -> str | None:
    """Return the name of the engine whose counters a page has.

    Args:
        body: A page in the Prometheus text format.

    Returns:
        The engine most of whose measures have counts, or are there, and all of the required ones;
        else the first whose prefix is; else None.
    """
    best, most = None, (0, 0)
    by_prefix = None
    for name, engine in ENGINES.items():
        try:
            reading = read_counters(body, engine)
        except ScrapeError:
            continue
        found = sum(bool(one.series) for one in reading.measures.values()), len(reading.measures)
        if found > most and not reading.missing:
            best, most = name, found
        if by_prefix is None and any(has_name(body, start) for start in engine.prefixes):
            by_prefix = name
    return best or by_prefix


class MetricsFetcher:
    """Fetches the metrics endpoints of a service, with a connection for each request.

    A server that unloads its model is looked at first, at an address that does not load it: while it
    sleeps its counters are those of the last reading.

    Args:
        endpoint: Its engine, timeout, token and certificates.
    """

    def __init__(self, endpoint: MetricsEndpoint) -> None:
        self._token = endpoint.token
        limits = ExchangeLimits(
            endpoint.timeout_s, endpoint.timeout_s, max_body_bytes=MAX_BYTES + 1
        )
        self._client = HttpClient(
            limits,
            ca_file=endpoint.ca_file,
            further_headers=endpoint.sent_headers,
        )
        self._sleeps = engine_of(endpoint).sleeps
        self._pages: dict[str, bytes] = {}

    def __call__(self, url: str) -> bytes:
        """Fetch an endpoint; return its body in the Prometheus text format.

        Raises:
            ScrapeError: No such response, in one line and without secrets or the URL; or its model
                sleeps, and was not read before.
        """
        if not self._sleeps:
            return self._get(url, {})
        if self.look(url) != "asleep":
            # A router must not load a model that was unloaded in between.
            self._pages[url] = self._get(f"{url}&autoload=false" if "?" in url else url, {})
        elif url not in self._pages:
            raise ScrapeError("its model is not loaded, and a reading would load it")
        return self._pages[url]

    def look(self, url: str) -> Literal["asleep", "kept awake", ""]:
        """Return whether a server unloaded its model, or counts each reading as use; "" for neither.

        It asks what loads no model. A server that does not answer is read, for its error.
        """
        if not self._sleeps:
            return ""
        (name,) = parse_qs(urlsplit(url).query).get("model", [""])
        try:
            props = self._stated(url, "props")
            build = _BUILD.match(str(props.get("build_info")))
            is_old = build is None or int(build[1]) < READ_ASLEEP_BUILD
            is_asleep = is_old and props.get("is_sleeping") is True
            if name:
                is_asleep = any(
                    model["status"]["value"] != "loaded"
                    for model in self._stated(url, "models")["data"]
                    if name in (model["id"], *model.get("aliases", ()))
                )
            is_kept_awake = is_old and bool(name or "is_sleeping" in props)
        except (ScrapeError, UnusableInputError, AttributeError, LookupError, TypeError):
            return ""
        return "asleep" if is_asleep else "kept awake" if is_kept_awake else ""

    def is_behind_activator(self, url: str) -> bool:
        """Return whether Knative's proxies forward a URL: they count each reading as a request.

        Only they answer a request with its probe header, at any path, and start no server for it.
        Source: knative.dev/networking, `pkg/http/header`.
        """
        root = urlsplit(url)._replace(path="/", query="").geturl()
        try:
            return self._get(root, {"K-Network-Probe": "queue"}) == b"queue"
        except ScrapeError as error:
            return "unexpected probe header" in str(error)

    def _stated(self, url: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the JSON of an address beside that of the metrics."""
        parts = urlsplit(url)
        path = f"{parts.path.rpartition('/')[0]}/{name}"
        return bounded_json(self._get(parts._replace(path=path, query="").geturl(), {}))

    def _get(self, url: str, headers: Mapping[str, str]) -> bytes:
        headers = {"Accept": "text/plain;version=0.0.4", **headers}
        try:
            destination = Destination.parse(url).unnamed()
            authorization = bearer(self._token)
            response = self._client.request("GET", destination, headers | authorization)
            # Scrapes are not retried: only the message is used.
            raise_for_status(response, now_s=0.0, hints=_HINTS, is_tls=destination.is_tls)
        except DeliveryError as error:
            raise ScrapeError(error.reason) from None
        return _body(response)


def _body(response: HttpResponse) -> bytes:
    if response.status != _OK:
        raise ScrapeError(f"HTTP {response.status}")
    # The decompressed size of a response would not be limited.
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ScrapeError("the response is compressed, which was not requested")
    if len(response.body) > MAX_BYTES:
        raise ScrapeError(f"the response is larger than {MAX_BYTES} bytes")
    return response.body


# For each engine the counters of total latency, and of the requests in it.
LATENCIES: Final[Mapping[str, tuple[str, str]]] = {
    engine: (f"{histogram}_sum", f"{histogram}_count")
    for engine, histogram in {
        "vllm": "vllm:time_to_first_token_seconds",
        "ray_vllm": "ray_vllm_time_to_first_token_seconds",
        "sglang": "sglang:time_to_first_token_seconds",
        "tgi": "tgi_request_duration",
        "kserve": "request_predict_seconds",
        "mlserver": "model_infer_request_duration",
        "tensorrt_llm": "trtllm_time_to_first_token_seconds",
        "dynamo": "dynamo_frontend_time_to_first_token_seconds",
        "nim": "time_to_first_token_seconds",
    }.items()
} | {
    "triton": ("nv_inference_request_duration_us", "nv_inference_request_success"),
    "torchserve": ("ts_inference_latency_microseconds", "ts_inference_requests_total"),
}


class LatencyTotal(NamedTuple):
    """Latency summed over requests since the start of a service.

    Attributes:
        total: In the engine's unit; only ratios are compared.
        requests: Number of requests in it.
    """

    total: float
    requests: float


def read_latency(endpoint: MetricsEndpoint, fetch: Callable[[str], bytes]) -> LatencyTotal:
    """Read the latency of a service, over all its replicas and models.

    Counters that are not exposed count as 0: some engines create them with the first request.

    Args:
        endpoint: Its metrics; its engine is one of LATENCIES.
        fetch: Fetches the metrics at an address.

    Raises:
        ScrapeError: They cannot be read.
    """
    sums = [0.0, 0.0]
    for url in endpoint.url:
        body = fetch(url)
        for index, counter in enumerate(LATENCIES[endpoint.engine]):
            names = ENGINES[endpoint.engine].spellings(counter)
            samples = parse_exposition(body, names).samples
            found = next((samples[name] for name in names if name in samples), None)
            sums[index] += sum(sample.value for sample in found or ())
    return LatencyTotal(*sums)


class ModelNames:
    """Names that a server or a cluster chose, a limited number of them at a time.

    Args:
        utc_ns: UTC ns.
        known: Names that already have series, and UTC in ns at which they were last seen.
        names_max: Their number.
    """

    def __init__(
        self,
        utc_ns: Callable[[], int],
        known: Mapping[str, int] | None = None,
        names_max: int = MAX_NAMES,
    ) -> None:
        self._utc_ns = utc_ns
        self._names_max = names_max
        known_ns = {name: at_ns for name, at_ns in (known or {}).items() if name not in ("", OTHER)}
        newest = sorted(known_ns, key=lambda name: known_ns[name], reverse=True)[:names_max]
        self._seen_ns = {name: known_ns[name] for name in newest}

    def name(self, model: str, *, is_used: bool = True) -> str:
        """Return the name under which a model is counted: its own, or "other" beyond the limit.

        A model that counted nothing takes a free place, and leaves it to the next one that did.

        Args:
            model: Its name at the server; "" if there is none, which is returned unchanged.
            is_used: Whether it counted anything since the last reading.
        """
        if model in ("", OTHER):
            return model
        now_ns, seen_ns = self._utc_ns(), self._seen_ns
        if model not in seen_ns and len(seen_ns) >= self._names_max:
            if not is_used:
                return OTHER
            oldest = min(seen_ns, key=lambda name: seen_ns[name])
            if seen_ns[oldest] >= now_ns - int(KEPT_S * NS_PER_S):
                return OTHER
            del seen_ns[oldest]
        seen_ns[model] = now_ns if is_used else seen_ns.get(model, 0)
        return model
