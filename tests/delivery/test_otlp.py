"""OTLP: names of the semantic conventions, and answers of receivers."""

import gzip

import pytest
from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater
from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from costprobe.core.schema import make_point
from costprobe.delivery.otlp import Otlp, OtlpConfig
from fakes.cases import check_all
from fakes.otlp import PROTOBUF, OtlpReceiver, decoded
from fakes.sending import send, sink_of
from record.record_files import check

TIME_NS = 1_780_000_000_123_456_789
CPU = {"device": "cpu", "kind": "cpu"}
DEVICE = {"host": "h", "device": "gpu0", "kind": "gpu", "model": "H100", "uuid": "GPU-1"}


@pytest.fixture
def receiver():
    opened = OtlpReceiver()
    yield opened
    opened.stop()


@pytest.fixture
def sink(receiver):
    opened = sink_of("otlp", receiver.url, timeout_s=5.0)
    yield opened
    opened.close()


def sent(*points):
    """What a request for some rows contains, by metric: kind, unit, value and attributes."""
    sink = Otlp(OtlpConfig(api="otlp", url="http://127.0.0.1:1"), SystemClock())
    body = sink.encode("\n".join(map(render, points)).encode())
    return {
        name: (*value, {k: v for k, v in attributes if k != "service.name"})
        for (name, attributes, _), value in decoded(body).items()
    }


def answered(**partial):
    """The response of a receiver that has something to report."""
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    answer = metrics_service_pb2.ExportMetricsServiceResponse(partial_success=partial)
    return answer.SerializeToString()


def test_device_rows_have_the_names_and_units_of_the_hardware_conventions():
    fields = {
        "power_w": 350.5,
        "temp_c": 61.0,
        "util_pct": 25.0,
        "mem_used_bytes": 2**40 + 1,
        "energy_j": 3505.0,
        "energy_suspect": True,
        "energy_method": "counter",
    }
    gpu, cpu = (make_point("device", tags, fields, TIME_NS) for tags in (DEVICE, CPU))
    # The conventions on GPUs do not apply to a CPU.
    check("otlp.json", [sent(gpu), sent(cpu)])


def test_rows_of_texts_alone_are_left_out_and_damaged_rows_are_rejected(sink, receiver):
    send(sink, render(Point("event", {"kind": "price"}, {"title": "a b"}, TIME_NS)).encode())
    assert receiver.points == {}
    with pytest.raises(Rejected, match="damaged row"):
        sink.encode(b"no line protocol")


def test_request_has_path_token_and_compression(receiver, tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    sink = sink_of("otlp", f"{receiver.url}/otlp/", token=f"file:{tmp_path}/token")
    line = render(Point("m", {}, {"v": 1.5}, TIME_NS)).encode()
    send(sink, line)
    sink.close()
    ((path, headers),) = receiver.requests
    assert path == "/otlp/v1/metrics"
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["Content-Type"] == "application/x-protobuf"
    away = Otlp(OtlpConfig(api="otlp", url="https://collector.example.com:4318"), SystemClock())
    assert list(decoded(gzip.decompress(away.encode(line)))) == [
        ("costprobe.m.v", (("service.name", "costprobe"),), TIME_NS)
    ]


def test_answers_become_errors_by_what_the_caller_has_to_do(sink, receiver):
    line = render(Point("m", {}, {"v": 1.5}, TIME_NS)).encode()
    json, page = "application/json", "text/html"
    noted = b'{"partialSuccess": {"rejectedDataPoints": "0", "errorMessage": "slow down"}}'
    refused = b'{"partialSuccess": {"rejectedDataPoints": "7", "errorMessage": "too old"}}'
    rejected = answered(rejected_data_points=1, error_message="too old")

    def check(answer, error, reason):
        receiver.answer = answer
        with pytest.raises(error, match=reason):
            send(sink, line)

    check_all(
        check,
        [
            ((200, PROTOBUF, rejected), Rejected, "partly rejected: too old"),
            ((200, PROTOBUF, rejected[:-1]), Misconfigured, "not the response"),
            ((200, page, b"<html>log in</html>"), Misconfigured, "not the response"),
            ((400, json, b'{"message": "bad"}'), Rejected, "bad"),
            # A google.rpc.Status.
            ((400, PROTOBUF, b"\x08\x03\x12\x03bad"), Rejected, "bad"),
            ((415, json, b"{}"), Misconfigured, "accepts OTLP/HTTP"),
            ((401, json, b"{}"), Misconfigured, "token"),
            ((503, json, b"{}"), RetryLater, "503"),
            ((200, json, b'{"status": "success"}'), Misconfigured, "not the response of an OTLP"),
            ((200, json, refused), Rejected, "partly rejected: too old"),
        ],
    )
    # A warning is no rejection; some receivers answer in JSON, or without content.
    warned = answered(error_message="deprecated")
    for kind, accepted in (
        (PROTOBUF, b""),
        (PROTOBUF, warned),
        (json, b"{}"),
        (json, noted),
        (page, b""),
    ):
        receiver.answer = (200, kind, accepted)
        send(sink, line)


def test_missing_extra_is_an_error_of_the_configuration(monkeypatch):
    monkeypatch.setattr("costprobe.delivery.otlp.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="pip install opentelemetry-proto"):
        OtlpConfig(api="otlp", url="http://127.0.0.1:1")
