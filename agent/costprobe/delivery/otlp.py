"""OpenTelemetry: metrics over OTLP/HTTP, in binary protobuf, which every receiver takes.

Sources: the OTLP specification 1.x, and the semantic conventions for hardware (`hw.*`) and generative
AI (`gen_ai.*`). Every value is a gauge at the time of its row, so that one that is sent twice changes
nothing. Metrics have no texts: these fields, and rows with nothing else, such as events, are not sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from costprobe.adapters.http.access import (
    WithToken,
    bearer,
)
from costprobe.adapters.http.errors import (
    Hints,
    HttpResponse,
    Misconfigured,
    Rejected,
    json_object,
    raise_for_status,
    server_message,
)
from costprobe.core.clock import Clock
from costprobe.core.line_protocol import parse_line
from costprobe.core.records import Point
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.delivery.influx import HttpSink

_HINTS: Final = Hints(
    not_found="check url: /v1/metrics is added to it",
    unexpected="check that url accepts OTLP/HTTP",
)
_PROTOBUF: Final = "application/x-protobuf"
_ANY: Final = ("gpu", "mig", "cpu")
# Attributes that conventions name, by tag; all other tags keep their names.
_ATTRIBUTES: Final = {"served_model": "gen_ai.request.model"}
_DEVICE_ATTRIBUTES: Final = {"device": "hw.id", "model": "hw.model", "uuid": "hw.serial_number"}
# UCUM codes, by the suffix of a field.
_UNITS: Final = {
    "_s": "s",
    "_ms": "ms",
    "_ns": "ns",
    "_j": "J",
    "_w": "W",
    "_bytes": "By",
    "_mhz": "MHz",
    "_c": "Cel",
    "_pct": "%",
    "_g": "g",
}
_CUMULATIVE: Final = 2
_PARTIAL_SUCCESS: Final = "partialSuccess"


class _Metric(NamedTuple):
    """A metric of a host.

    Attributes:
        name: Its name.
        unit: Its unit, as a UCUM code.
        is_amount: Whether its instrument is an UpDownCounter instead of a Gauge.
    """

    name: str
    unit: str
    is_amount: bool = False


class _Convention(NamedTuple):
    """A metric of the semantic conventions, of devices of some kinds only.

    Attributes:
        metric: The metric.
        scale: Factor from the field's unit.
        kinds: Values of the tag `kind`.
    """

    metric: _Metric
    scale: float = 1
    kinds: tuple[str, ...] = ("gpu", "mig")


# Fields of `device`.
_CONVENTIONS: Final[Mapping[str, _Convention]] = {
    "power_w": _Convention(_Metric("hw.power", "W"), kinds=_ANY),
    "temp_c": _Convention(_Metric("hw.temperature", "Cel"), kinds=_ANY),
    "util_pct": _Convention(_Metric("hw.gpu.utilization", "1"), 0.01),
    "mem_used_bytes": _Convention(_Metric("hw.gpu.memory.usage", "By", is_amount=True)),
    "mem_total_bytes": _Convention(_Metric("hw.gpu.memory.limit", "By", is_amount=True)),
}


class OtlpConfig(WithToken, HttpSinkConfig):
    """An OpenTelemetry collector, or another receiver of OTLP/HTTP."""

    api: Literal["otlp"] = Field(description="OTLP/HTTP.", examples=["otlp"])

    @model_validator(mode="after")
    def _messages_are_installed(self) -> OtlpConfig:
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
            package = "opentelemetry-proto"
            raise ValueError(f"needs {package}: {sys.executable} -m pip install {package}")
        return self


class Otlp(HttpSink):
    """Posts to /v1/metrics.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: OtlpConfig, clock: Clock) -> None:
        super().__init__(config, clock, f"{config.url.rstrip('/')}/v1/metrics")
        self._token = config.token
        self._messages = _messages()

    def encode(self, points: bytes) -> bytes:
        """Return an ExportMetricsServiceRequest for points in line protocol.

        Raises:
            Rejected: A line is damaged.
        """
        lines = (line for line in points.decode().split("\n") if line)
        try:
            request = request_of(map(parse_line, lines))
        except ValueError as error:
            raise Rejected(f"damaged row: {error}") from error
        body: bytes = request.SerializeToString()
        return super().encode(body)

    def post(self, body: bytes) -> None:
        """Send what `encode` returned; raises as `Sink.post` does."""
        headers = bearer(self._token)
        response, now_s, is_tls = self._request(headers, _PROTOBUF, body)
        raise_for_status(response, now_s=now_s, hints=_HINTS, is_tls=is_tls)
        _check_accepted(response)

    def check(self) -> str:
        """Send a request without metrics, which the server checks for its token and path."""
        self.post(self.encode(b""))
        return "the server accepts OTLP metrics"


def request_of(points: Iterator[Point]) -> Any:  # noqa: ANN401 - a generated message
    """Return an ExportMetricsServiceRequest: a resource for each host, its metrics by name."""
    request = _messages().ExportMetricsServiceRequest()
    scopes: dict[str, Any] = {}
    metrics: dict[tuple[str, _Metric], Any] = {}
    for point in points:
        host = point.tags.get("host", "")
        for field, value in point.fields.items():
            if isinstance(value, str):
                continue
            metric, attributes, scale = _metric_of(point, field)
            if (host, metric) not in metrics:
                if host not in scopes:
                    scopes[host] = _add_scope(request, host)
                metrics[host, metric] = _add_metric(scopes[host], metric)
            found = metrics[host, metric].add(time_unix_nano=point.time_ns)
            _add_attributes(found.attributes, attributes)
            scaled = value if scale == 1 else value * scale
            if isinstance(scaled, float):
                found.as_double = scaled
            else:
                found.as_int = int(scaled)
    return request


def _metric_of(point: Point, field: str) -> tuple[_Metric, Mapping[str, str], float]:
    """Return a field's metric, the attributes of its data point, and the factor of its value."""
    attributes = {
        _ATTRIBUTES.get(tag, tag): text for tag, text in point.tags.items() if tag != "host"
    }
    convention = _CONVENTIONS.get(field) if point.measurement == "device" else None
    if convention is None or point.tags.get("kind") not in convention.kinds:
        return _Metric(f"costprobe.{point.measurement}.{field}", _unit(field)), attributes, 1
    attributes = {_DEVICE_ATTRIBUTES.get(tag, tag): text for tag, text in attributes.items()}
    attributes["hw.type"] = "cpu" if point.tags["kind"] == "cpu" else "gpu"
    return convention.metric, attributes, convention.scale


def _add_scope(request: Any, host: str) -> Any:  # noqa: ANN401 - generated messages
    resource = request.resource_metrics.add()
    _add_attributes(
        resource.resource.attributes,
        {"service.name": "costprobe", **({"host.name": host} if host else {})},
    )
    scope = resource.scope_metrics.add()
    scope.scope.name = "costprobe"
    return scope


def _add_metric(scope: Any, metric: _Metric) -> Any:  # noqa: ANN401 - generated messages
    """Add a metric; return the container of its data points."""
    added = scope.metrics.add(name=metric.name, unit=metric.unit)
    if not metric.is_amount:
        return added.gauge.data_points
    added.sum.aggregation_temporality = _CUMULATIVE
    return added.sum.data_points


def _add_attributes(container: Any, attributes: Mapping[str, str]) -> None:  # noqa: ANN401 - a generated message
    for key, text in attributes.items():
        container.add(key=key).value.string_value = text


def _unit(field: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if field.endswith(suffix)), "")


@cache
def _messages() -> Any:  # noqa: ANN401 - a generated module
    """Return the module of the service's messages: 7 MB, and an optional dependency."""
    return import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


def _check_accepted(response: HttpResponse) -> None:
    """Check an ExportMetricsServiceResponse.

    Raises:
        Rejected: The server did not accept all of it.
        Misconfigured: It is no such response, such as the login page of a proxy.
    """
    rejected, reason = 0, ""
    document = json_object(response.body)
    if response.headers.get("content-type", "").startswith(_PROTOBUF):
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an optional dependency

        try:
            answer = _messages().ExportMetricsServiceResponse.FromString(response.body)
        except DecodeError:
            raise _no_receiver(response) from None
        rejected = answer.partial_success.rejected_data_points
        reason = answer.partial_success.error_message
    elif document is not None and document.keys() <= {_PARTIAL_SUCCESS}:
        # Some receivers answer in JSON, where a number of 64 bits is a text.
        partial = document.get(_PARTIAL_SUCCESS)
        if isinstance(partial, dict):
            rejected = partial.get("rejectedDataPoints") not in (None, 0, "0")
            reason = str(partial.get("errorMessage") or "")
    elif response.body.strip():
        raise _no_receiver(response)
    if rejected:
        raise Rejected(f"partly rejected: {server_message(reason.encode())}")


def _no_receiver(response: HttpResponse) -> Misconfigured:
    message = server_message(response.body)
    return Misconfigured(f"not the response of an OTLP receiver: {message}; check url")
