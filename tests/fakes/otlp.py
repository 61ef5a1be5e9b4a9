"""A receiver of OTLP/HTTP that decodes with the official protobuf package."""

import gzip

from fakes.servers import Scripted, free_port

PROTOBUF = "application/x-protobuf"


def decoded(body):
    """The data points of a request: (metric, attributes with those of the resource, time in ns) to (kind, value)."""
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
    found = {}
    for resource in request.resource_metrics:
        shared = _texts(resource.resource.attributes)
        for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points:
                attributes = tuple(sorted((shared | _texts(point.attributes)).items()))
                value = getattr(point, point.WhichOneof("value"))
                key = (metric.name, attributes, point.time_unix_nano)
                assert key not in found, "one point twice in a request"
                found[key] = (kind, metric.unit, value)
    return found


def _texts(attributes):
    return {attribute.key: attribute.value.string_value for attribute in attributes}


class OtlpReceiver:
    """A receiver that can be stopped and started again on its port.

    Attributes:
        points: What it received, as `decoded`.
        answer: Status, type and body of its responses.
    """

    def __init__(self):
        self.points = {}
        self.requests = []
        self.answer = (200, PROTOBUF, b"")
        self._address = ("127.0.0.1", free_port())
        self.url = f"http://127.0.0.1:{self._address[1]}"
        self.start()

    def start(self):
        self._server = Scripted(self._take, address=self._address).__enter__()

    def stop(self):
        self._server.__exit__()

    def _take(self, _, path, headers, body):
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.requests.append((path, headers))
        self.points.update(decoded(body))
        status, kind, content = self.answer
        return status, {"Content-Type": kind, "Connection": "close"}, content
