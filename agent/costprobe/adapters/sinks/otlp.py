"""OpenTelemetry: metrics over OTLP/HTTP, in JSON.

Sources: the OTLP specification 1.x (JSON encoding: names in lowerCamelCase, 64-bit integers as text),
and the semantic conventions for hardware (`hw.*`) and generative AI (`gen_ai.*`). Every value is a
gauge at the time of its row, so that one that is sent twice changes nothing. Metrics have no texts:
these fields, and rows with nothing else, such as events, are not sent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import Field, model_validator

from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import Misconfigured, Rejected
from costprobe.adapters.net.secret import Secret, credentials_folder
from costprobe.adapters.net.status import Hints, json_object, raise_for_status, server_message
from costprobe.adapters.sinks.influx_write import compress, http_client, is_compressed
from costprobe.adapters.sinks.settings import HttpSinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.clock import Clock
from costprobe.core.config.fields import Name
from costprobe.core.line_protocol import parse_line
from costprobe.core.records import NS_PER_S, Point

_HINTS: Final = Hints(
    not_found="check url: /v1/metrics is added to it",
    unexpected="check that url accepts OTLP/HTTP in JSON",
)


class _Convention(NamedTuple):
    """A metric of the semantic conventions, of devices of some kinds only.

    Attributes:
        name: Its name.
        unit: Its unit.
        scale: Factor from the field's unit.
        is_amount: Whether its instrument is an UpDownCounter instead of a Gauge.
        kinds: Values of the tag `kind`.
    """

    name: str
    unit: str
    scale: float = 1.0
    is_amount: bool = False
    kinds: tuple[str, ...] = ("gpu", "mig")


_ANY: Final = ("gpu", "mig", "cpu")
# Fields of `device`.
_CONVENTIONS: Final[Mapping[str, _Convention]] = {
    "power_w": _Convention("hw.power", "W", kinds=_ANY),
    "temp_c": _Convention("hw.temperature", "Cel", kinds=_ANY),
    "util_pct": _Convention("hw.gpu.utilization", "1", 0.01),
    "mem_used_bytes": _Convention("hw.gpu.memory.usage", "By", is_amount=True),
    "mem_total_bytes": _Convention("hw.gpu.memory.limit", "By", is_amount=True),
}
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


class OtlpConfig(HttpSinkConfig):
    """An OpenTelemetry collector, or another receiver of OTLP/HTTP in JSON."""

    api: Literal["otlp"] = Field(description="OTLP/HTTP.", examples=["otlp"])
    token_file: Path | None = Field(
        None,
        description="File with a bearer token.",
        examples=["/etc/costprobe/otlp.token"],
    )
    token_credential: Name | None = Field(
        None, description="Name of the systemd credential with that token.", examples=["otlp-token"]
    )

    @model_validator(mode="after")
    def _one_place_for_the_token(self) -> OtlpConfig:
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self


class Otlp(Sink):
    """Posts to /v1/metrics.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: OtlpConfig, clock: Clock) -> None:
        self._clock = clock
        self._token = Secret(
            "token", config.token_file, config.token_credential, credentials_folder(os.environ)
        )
        self._url = f"{config.url.rstrip('/')}/v1/metrics"
        self._is_compressed = is_compressed(config)
        self._http = http_client(config)

    def encode(self, points: bytes) -> bytes:
        """Return an ExportMetricsServiceRequest in JSON for points in line protocol.

        Raises:
            Rejected: A line is damaged.
        """
        lines = (line for line in points.decode().split("\n") if line)
        try:
            request = request_of(map(parse_line, lines))
        except ValueError as error:
            raise Rejected(f"damaged row: {error}") from error
        body = json.dumps(request, separators=(",", ":")).encode()
        return compress(body) if self._is_compressed else body

    def post(self, body: bytes) -> None:
        """Send what `encode` returned; raises as `Sink.post` does."""
        headers, secrets = {"Content-Type": "application/json"}, list[str]()
        if self._is_compressed:
            headers["Content-Encoding"] = "gzip"
        if self._token.is_given:
            secrets = [self._token.read_ascii()]
            headers["Authorization"] = f"Bearer {secrets[0]}"
        destination = Destination.parse(self._url)
        response = self._http.request("POST", destination, headers, body)
        raise_for_status(
            response,
            now_s=self._clock.time_ns() / NS_PER_S,
            secrets=secrets,
            hints=_HINTS,
            is_tls=destination.is_tls,
        )
        _check_accepted(response.body, secrets)

    def check(self) -> str:
        """Send a request without metrics, which the server checks for its token and path."""
        self.post(self.encode(b""))
        return "the server accepts OTLP metrics"

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def request_of(points: Iterator[Point]) -> dict[str, object]:
    """Return an ExportMetricsServiceRequest: a resource for each host, its metrics by name."""
    hosts: dict[str, dict[tuple[str, str, bool], list[dict[str, object]]]] = {}
    for point in points:
        metrics = hosts.setdefault(point.tags.get("host", ""), {})
        for field, value in point.fields.items():
            if not isinstance(value, str):
                key, data_point = _data_point(point, field, value)
                metrics.setdefault(key, []).append(data_point)
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": _attributes(_resource(host))},
                "scopeMetrics": [
                    {
                        "scope": {"name": "costprobe"},
                        "metrics": [_metric(*key, found) for key, found in metrics.items()],
                    }
                ],
            }
            for host, metrics in hosts.items()
            if metrics
        ]
    }


def _data_point(
    point: Point, field: str, value: float
) -> tuple[tuple[str, str, bool], dict[str, object]]:
    """Return name, unit and instrument of a field's metric, and its data point."""
    convention = _CONVENTIONS.get(field) if point.measurement == "device" else None
    attributes = {
        _ATTRIBUTES.get(tag, tag): text for tag, text in point.tags.items() if tag != "host"
    }
    if convention is None or point.tags.get("kind") not in convention.kinds:
        key = f"costprobe.{point.measurement}.{field}", _unit(field), False
    else:
        key = convention.name, convention.unit, convention.is_amount
        attributes = {_DEVICE_ATTRIBUTES.get(tag, tag): text for tag, text in attributes.items()}
        attributes["hw.type"] = "cpu" if point.tags["kind"] == "cpu" else "gpu"
        value = value if convention.scale == 1 else value * convention.scale
    number = {"asDouble": value} if isinstance(value, float) else {"asInt": str(int(value))}
    return key, {
        "attributes": _attributes(attributes),
        "timeUnixNano": str(point.time_ns),
        **number,
    }


def _metric(name: str, unit: str, is_amount: bool, found: list[dict[str, object]]) -> object:  # noqa: FBT001 - a part of its key
    if is_amount:
        amounts = {"aggregationTemporality": _CUMULATIVE, "isMonotonic": False, "dataPoints": found}
        return {"name": name, "unit": unit, "sum": amounts}
    return {"name": name, "unit": unit, "gauge": {"dataPoints": found}}


def _unit(field: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if field.endswith(suffix)), "")


def _resource(host: str) -> Mapping[str, str]:
    return {"service.name": "costprobe", **({"host.name": host} if host else {})}


def _attributes(attributes: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]


def _check_accepted(body: bytes, secrets: list[str]) -> None:
    """Check an ExportMetricsServiceResponse.

    Raises:
        Rejected: The server did not accept all of it.
        Misconfigured: It is no such response, such as the login page of a proxy.
    """
    answer = json_object(body) if body.strip() else {}
    if answer is None:
        message = server_message(body, secrets)
        raise Misconfigured(f"not the response of an OTLP receiver: {message}; check url")
    partial = answer.get("partialSuccess")
    if isinstance(partial, dict) and str(partial.get("rejectedDataPoints", "0")) != "0":
        message = server_message(str(partial.get("errorMessage", "")).encode(), secrets)
        raise Rejected(f"partly rejected: {message}")
