"""`/metrics`: counters, the newest value of every numeric field, and the daemon's own metrics.

prometheus_client is imported only here and beside; these modules are imported only if HTTP is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.counters import StoredSample
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import SCHEMA
from costprobe.daemon.http.counter_families import counter_families, kept
from costprobe.daemon.http.labels import labels_of
from costprobe.daemon.http.newest import Newest, Tags

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


class Metrics:
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
        self._registry = CollectorRegistry()
        self._registry.register(_AgentCollector(now))
        self._registry.register(_StoreCollector(store, clock, window_s, max_series))

    def text(self) -> bytes:
        """Return the page in Prometheus' text format."""
        return generate_latest(self._registry)

    def openmetrics(self) -> bytes:
        """Return the page in the format of OpenMetrics 1.0."""
        return bytes(openmetrics.generate_latest(self._registry))  # type: ignore[no-untyped-call]


class _StoreCollector(Collector):
    def __init__(self, store: Path, clock: Clock, window_s: float, max_series: int) -> None:
        self._store = store
        self._clock = clock
        self._window_s = window_s
        self._max_series = max_series

    def collect(self) -> Iterator[Metric]:
        newest, totals, is_readable = Newest(self._max_series), list[StoredSample](), True
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
        for measurement in SCHEMA:
            for field, series in newest.by_field(measurement):
                yield _family(measurement, field, series)
        yield _firing(alerts)
        yield GaugeMetricFamily(
            "costprobe_metrics_store_readable",
            "Whether the store could be read for this page, 1 or 0",
            value=float(is_readable),
        )
        yield GaugeMetricFamily(
            "costprobe_metrics_dropped_series",
            "Series beyond http.max_series, which are not on this page",
            value=float(newest.dropped + max(0, len(totals) - self._max_series)),
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


class _AgentCollector(Collector):
    def __init__(self, now: Callable[[], AgentNow]) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        status = now.status
        yield InfoMetricFamily(
            "costprobe_build", "The daemon's version", value={"version": str(status["version"])}
        )
        if now.row is not None:
            for field, value in now.row.fields.items():
                if not isinstance(value, str):
                    yield _family(_AGENT, field, [(now.row.tags, float(value))])
        yield _gauge(
            "part_alive", "Whether a part of the daemon is alive, 1 or 0", "part", now.liveness
        )
        faults = GaugeMetricFamily(
            "costprobe_fault", "A part that does not work", labels=("fault", "subject", "severity")
        )
        for fault in now.faults:
            faults.add_metric((fault.name, fault.subject, fault.severity), 1)
        yield faults
        yield from _status_families(status)
        answers = CounterMetricFamily(
            "costprobe_http_answers", "Responses over HTTP", labels=("page", "code")
        )
        for (page, code), count in sorted(now.answers.items()):
            answers.add_metric((page, str(code)), count)
        yield answers
        yield CounterMetricFamily(
            "costprobe_http_broken_connections",
            "HTTP connections that ended without a response",
            value=now.broken,
        )


# Tables of the status document: the section, the metric, its label, the key, its help.
_COUNTED: Final = (
    ("jobs", "job_runs", "job", "runs", "Runs of a job of the daemon"),
    ("jobs", "job_errors", "job", "errors", "Runs of a job that failed"),
    ("jobs", "job_late", "job", "late", "Runs of a job that were skipped because they were late"),
    ("sinks", "sink_sent_points", "sink", "sent_points", "Points that a sink acknowledged"),
    ("sinks", "sink_rejected_points", "sink", "rejected_points", "Points that a sink rejected"),
    ("notifiers", "notifier_sent", "notifier", "sent", "Notifications that were acknowledged"),
    ("notifiers", "notifier_dropped", "notifier", "dropped", "Notifications that were discarded"),
)
_GAUGED: Final = (
    ("jobs", "job_last_duration_s", "job", "last_duration_s", "Length of a job's last run, in s"),
    ("notifiers", "notifier_queued", "notifier", "queued", "Queued notifications"),
)


def _status_families(status: Mapping[str, Any]) -> Iterator[Metric]:
    for section, name, label, key, words in _COUNTED:
        family = CounterMetricFamily(f"costprobe_{name}", words, labels=(label,))
        for subject, count in _column(status, section, key):
            family.add_metric((subject,), count)
        yield family
    for section, name, label, key, words in _GAUGED:
        yield _gauge(name, words, label, dict(_column(status, section, key)))


def _column(status: Mapping[str, Any], section: str, key: str) -> Iterator[tuple[str, float]]:
    for subject, row in status.get(section, {}).items():
        value = row.get(key)
        if value is not None:
            yield subject, float(value)


def _gauge(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"costprobe_{name}", words, labels=(label,))
    for subject, value in sorted(values.items()):
        family.add_metric((subject,), float(value))
    return family


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
