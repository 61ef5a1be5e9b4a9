"""`/metrics`: counters, the newest value of every numeric field, and the daemon's own metrics.

The monotonic counters are the totals in the store. Tags become labels of Prometheus.

prometheus_client is imported here, so this module is imported only if HTTP is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.incident import Fault
from costprobe.core.line_protocol import label_name
from costprobe.core.records import NS_PER_S, FieldValue, Point
from costprobe.core.schema import (
    BUCKETS_S,
    COUNTERS,
    PREFIX,
    RUN_LATENCY,
    RUN_LATENCY_HELP,
    SCHEMA,
    StoredSample,
)


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels; characters that are invalid in a label's name are replaced."""
    labels: dict[str, str] = {}
    for tag, value in sorted(tags.items()):
        name = label_name(tag)
        while name in labels:
            name += "_"
        labels[name] = value
    return labels


_HELP: Final = {
    name: counter.help
    for counters in COUNTERS.values()
    for counter in counters
    for name in (counter.name, counter.name.replace("service_", "model_", 1))
}
_Labels = tuple[tuple[str, str], ...]
_SINCE: Final = " since the store was created"


def kept(totals: Sequence[StoredSample], limit: int) -> list[StoredSample]:
    """Return at most `limit` totals; the counters with the most series lose theirs first."""
    ranked = (
        (rank, total)
        for _, samples in groupby(totals, key=lambda total: total.name)
        for rank, total in enumerate(samples)
    )
    chosen = sorted(ranked, key=lambda pair: pair[0])[:limit]
    return sorted((total for _, total in chosen), key=lambda total: total.name)


def counter_families(totals: Sequence[StoredSample]) -> Iterator[Metric]:
    """Return the totals as metrics.

    Args:
        totals: In the order of their names.
    """
    for name, samples in groupby(totals, key=lambda amount: amount.name):
        if name.startswith(RUN_LATENCY):
            continue
        family_name = name.removesuffix("_total")
        # A total of a version that counted more is not shown.
        if family_name not in _HELP:
            continue
        words = f"{_HELP[family_name]}{_SINCE}"
        family = CounterMetricFamily(f"{PREFIX}{family_name}", words)
        for sample in samples:
            family.add_sample(f"{PREFIX}{name}", labels_of(sample.labels), float(sample.value))
        yield family
    yield _histogram(amount for amount in totals if amount.name.startswith(RUN_LATENCY))


def _histogram(totals: Iterable[StoredSample]) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}{RUN_LATENCY}", RUN_LATENCY_HELP)
    buckets: dict[_Labels, dict[Decimal, int]] = {}
    sums_s: dict[_Labels, float] = {}
    for total in totals:
        labels = labels_of(total.labels)
        bound = labels.pop("le", None)
        if bound is None:
            sums_s[tuple(labels.items())] = float(total.value)
        else:
            of_series = buckets.setdefault(tuple(labels.items()), {})
            of_series[Decimal(bound)] = int(total.value)
    for key, sum_s in sums_s.items():
        counts = sorted(buckets.get(key, {}).items())
        # The limit of series may have cut it.
        if len(counts) < len(BUCKETS_S):
            continue
        labels = dict(key)
        for bound_s, count in counts:
            le = "+Inf" if bound_s.is_infinite() else repr(float(bound_s))
            family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
        family.add_sample(f"{family.name}_count", labels, counts[-1][1])
        family.add_sample(f"{family.name}_sum", labels, sum_s)
    return family


Tags = Mapping[str, str]
_Key = tuple[tuple[str, str], ...]
# Series that differ only in this tag are states of one object, of which one is current.
_STATE_TAG: Final = {"alert": "state"}
# Texts that become labels: rows of these series are few. Their time is a value, for annotations.
_TEXT_LABELS: Final = {
    "event": ("severity", "title", "cause"),
    "alert": ("severity", "cause"),
}
_TEXT_LABEL_MAX: Final = 200


class Newest:
    """The newest value of each numeric field of each series."""

    def __init__(self) -> None:
        self._series: dict[str, dict[_Key, tuple[Tags, dict[str, float]]]] = {}

    def take(self, point: Point) -> None:
        """Add a row; rows of one measurement must come in the order of their times."""
        state = _STATE_TAG.get(point.measurement)
        key = tuple((name, value) for name, value in point.tags.items() if name != state)
        by_tags = self._series.setdefault(point.measurement, {})
        labels, fields = _labelled(point)
        tags, before = by_tags.get(key, (labels, {}))
        values = {
            name: float(value) for name, value in fields.items() if not isinstance(value, str)
        }
        by_tags[key] = labels, {**(before if tags == labels else {}), **values}

    def by_field(self, measurement: str) -> Iterator[tuple[str, list[tuple[Tags, float]]]]:
        """Return each field of a measurement with tags and value of each series that has it."""
        by_field: dict[str, list[tuple[Tags, float]]] = {}
        for _, (tags, values) in sorted(self._series.get(measurement, {}).items()):
            for field, value in values.items():
                by_field.setdefault(field, []).append((tags, value))
        yield from sorted(by_field.items())


def _labelled(point: Point) -> tuple[Tags, Mapping[str, FieldValue]]:
    """Return the labels and values of a row."""
    texts = _TEXT_LABELS.get(point.measurement)
    if texts is None:
        return point.tags, point.fields
    found = {
        name: str(point.fields[name])[:_TEXT_LABEL_MAX] for name in texts if name in point.fields
    }
    return {**point.tags, **found}, {**point.fields, "time_s": point.time_ns / NS_PER_S}


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text"
OPENMETRICS_CONTENT_TYPE: Final = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
# Cumulative fields; all others are gauges.
_COUNTERS: Final = {"cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"}
_FIRING_MAX: Final = 200
# The series of the daemon itself: its values come from the running process, not from the store.
_AGENT: Final = "agent"
_UNITS: Final = {
    "per_h": "currency per hour",
    "per_s": "1 per second",
    "per_inference": "currency per inference",
    "per_million_tokens_in": "currency per million tokens",
    "per_million_tokens_fresh": "currency per million tokens",
    "per_million_tokens_cached": "currency per million tokens",
    "per_million_tokens_out": "currency per million tokens",
    "per_inference_j": "joules per inference",
    "per_request_j": "joules per request",
    "per_million_tokens_in_j": "joules per million tokens",
    "per_million_tokens_out_j": "joules per million tokens",
    "ms": "milliseconds",
    "s": "seconds",
    "w": "watts",
    "j": "joules",
    "pct": "percent",
    "bytes": "bytes",
    "c": "degrees Celsius",
    "mhz": "megahertz",
    "ns": "nanoseconds since 1970, UTC",
}


class AgentNow(NamedTuple):
    """The daemon's own metrics at a scrape.

    Attributes:
        row: A row of the series `agent`; None while it is unknown.
        liveness: Whether each part is alive.
        faults: Current faults.
        status: The status document.
        answers: Responses over HTTP, by page and status code.
        broken: Connections that ended without a response.
    """

    row: Point | None
    liveness: Mapping[str, bool]
    faults: Sequence[Fault]
    status: Mapping[str, Any]
    answers: Mapping[tuple[str, int], int]
    broken: int


class Metrics(Collector):
    """The page `/metrics`, in Prometheus' text format and in OpenMetrics.

    Args:
        store: The store that the series are read from.
        clock: UTC.
        window_s: Maximum age of a newest value, in seconds.
        max_series: Maximum number of newest values, and of totals.
        now: Returns the daemon's own metrics.
    """

    def __init__(
        self,
        store: Path,
        clock: Clock,
        window_s: float,
        max_series: int,
        now: Callable[[], AgentNow],
    ) -> None:
        self._store = store
        self._clock = clock
        self._window_s = window_s
        self._max_series = max_series
        self._now = now
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the page in Prometheus' text format."""
        return generate_latest(self._registry)

    def openmetrics(self) -> bytes:
        """Return the page in the format of OpenMetrics 1.0."""
        return bytes(openmetrics.generate_latest(self._registry))  # type: ignore[no-untyped-call]

    def describe(self) -> Iterable[Metric]:
        """Return nothing: which series there are depends on the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the daemon itself, then those of the store."""
        yield from _of_agent(self._now())
        newest, totals, is_readable = Newest(), list[StoredSample](), True
        alerts: Mapping[str, Any] = {}
        now_ns = self._clock.time_ns()
        since_ns = now_ns - int(self._window_s * NS_PER_S)
        try:
            with closing(StoreReader.open(self._store)) as reader:
                totals = reader.totals()
                alerts = reader.state("alerts") or alerts
                for measurement in (name for name in SCHEMA if name != _AGENT):
                    for point in reader.points(measurement, since_ns, now_ns + 1):
                        newest.take(point)
        except StoreError:
            is_readable = False
        yield from counter_families(kept(totals, self._max_series))
        left, dropped = self._max_series, max(0, len(totals) - self._max_series)
        for measurement in SCHEMA:
            for field, series in newest.by_field(measurement):
                if left:
                    yield _family(measurement, field, series[:left])
                dropped += max(0, len(series) - left)
                left = max(0, left - len(series))
        yield _firing(alerts)
        yield GaugeMetricFamily(
            "costprobe_metrics_store_readable",
            "Whether the store could be read for this page, 1 or 0",
            value=float(is_readable),
        )
        yield GaugeMetricFamily(
            "costprobe_metrics_dropped_series",
            "Series beyond http.max_series, which are not on this page",
            value=float(dropped),
        )


def _firing(document: Mapping[str, Any]) -> Metric:
    family = Metric("costprobe_alert_firing", "A firing incident that is not silenced", "gauge")
    silenced = document.get("silenced", ())
    firing = (
        alert
        for alert in document.get("alerts", ())
        if alert.get("state") == "firing" and alert.get("id") not in silenced
    )
    for alert in islice(firing, _FIRING_MAX):
        named = {"rule": alert["name"], "severity": alert["severity"], "cause": alert.get("cause")}
        labels = {**alert.get("labels", {}), **{key: text for key, text in named.items() if text}}
        family.add_sample(family.name, labels_of(labels), 1.0)
    return family


def _of_agent(now: AgentNow) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "costprobe_build", "The daemon's version", value={"version": str(now.status["version"])}
    )
    if now.row is not None:
        for field, value in now.row.fields.items():
            if not isinstance(value, str):
                yield _family(_AGENT, field, [(now.row.tags, float(value))])
    alive = _family_of("part_alive", "Whether a part of the daemon is alive, 1 or 0", "part")
    for part, is_alive in sorted(now.liveness.items()):
        alive.add_metric((part,), float(is_alive))
    yield alive
    faults = _family_of("fault", "A part that does not work", "fault", "subject", "severity")
    for fault in now.faults:
        faults.add_metric((fault.name, fault.subject, fault.severity), 1)
    yield faults
    for section, key, words in _STATUS:
        label = section.removesuffix("s")
        is_counter = key not in _STATUS_GAUGES
        family = _family_of(f"{label}_{key}", words, label, is_counter=is_counter)
        for subject, row in now.status.get(section, {}).items():
            if row.get(key) is not None:
                family.add_metric((subject,), float(row[key]))
        yield family
    answers = _family_of("http_answers", "Responses over HTTP", "page", "code", is_counter=True)
    for (page, code), count in sorted(now.answers.items()):
        answers.add_metric((page, str(code)), count)
    yield answers
    yield CounterMetricFamily(
        "costprobe_http_broken_connections",
        "HTTP connections that ended without a response",
        value=now.broken,
    )


def _family_of(
    name: str, words: str, *labels: str, is_counter: bool = False
) -> CounterMetricFamily | GaugeMetricFamily:
    family = CounterMetricFamily if is_counter else GaugeMetricFamily
    return family(f"costprobe_{name}", words, labels=labels)


# Values of the status document: the section, the key, the help.
_STATUS: Final = (
    ("jobs", "runs", "Runs of a job of the daemon"),
    ("jobs", "errors", "Runs of a job that failed"),
    ("jobs", "late", "Runs of a job that were skipped because they were late"),
    ("sinks", "sent_points", "Points that a sink acknowledged"),
    ("sinks", "rejected_points", "Points that a sink rejected"),
    ("notifiers", "sent", "Notifications that were acknowledged"),
    ("notifiers", "dropped", "Notifications that were discarded"),
    ("jobs", "last_duration_s", "Length of a job's last run, in s"),
    ("notifiers", "queued", "Queued notifications"),
)
_STATUS_GAUGES: Final = {"last_duration_s", "queued"}


def _family(measurement: str, field: str, series: Iterable[tuple[Tags, float]]) -> Metric:
    """Return one field of one measurement as a metric: costprobe_<measurement>_<field>."""
    is_counter = measurement == _AGENT and field in _COUNTERS
    words = f"{field} of the series {measurement}{_unit_words(measurement, field)}"
    family = Metric(f"costprobe_{measurement}_{field}", words, "counter" if is_counter else "gauge")
    name = f"{family.name}_total" if is_counter else family.name
    for tags, value in series:
        family.add_sample(name, labels_of(tags), value)
    return family


def _unit_words(measurement: str, field: str) -> str:
    kind = SCHEMA[measurement].fields.get(field)
    if kind is bool:
        return ", 1 or 0"
    # The longest suffix that is a unit.
    parts = field.split("_")
    suffixes = ("_".join(parts[start:]) for start in range(1, len(parts)))
    unit = next((_UNITS[suffix] for suffix in suffixes if suffix in _UNITS), None)
    return f", in {unit}" if unit else ""
