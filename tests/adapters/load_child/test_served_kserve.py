"""Probes of servers with the Open Inference Protocol, against small HTTP servers."""

import pytest
from costprobe.adapters.load_child.connection import ServerError
from costprobe.adapters.load_child.main import measure
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import InferenceServer, Notes, answering_tensors, request

GOOD = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.7]}


def run(server, **more):
    notes = Notes()
    measure(notes, request(server.url, "kserve", **more))
    (result,) = notes.of("served_result")
    return result


@pytest.mark.parametrize("version", [None, "2"])
def test_requests_are_counted_and_timed_without_tokens(version):
    with InferenceServer(answering_tensors([GOOD], pause_s=0.005)) as server:
        result = run(server, version=version, warmup_requests=1, requests=9, concurrency=3)
        inferences = server.posts("/infer")
    assert len(inferences) == 10
    assert (result["samples"], result["window_requests"]) == (9, 9)
    assert result["latency_ms"]["p50"] >= 5
    for name in ("ttft_ms", "tpot_ms", "tokens_in", "tokens_out", "token_source"):
        assert result[name] is None
    assert result["window_tokens_out"] is None
    assert result["software"]["version"] == (version or "server default")
    assert inferences[0].body == {"inputs": request("", "kserve")["inputs"]}
    assert inferences[0].path == f"/v2/models/m{'/versions/2' * bool(version)}/infer"


def test_answers_of_the_response_cache_are_marked():
    # Of 2 + 6 requests all but the first hit, none hit, or the server does not count.
    for cache_hits, cached in ((1, True), (99, False), (None, None)):
        with InferenceServer(answering_tensors([GOOD], cache_hits=cache_hits)) as server:
            assert run(server)["cached"] is cached, cache_hits


def test_metadata_of_server_and_model_is_reported():
    with InferenceServer(answering_tensors([GOOD])) as server:
        software = run(server)["software"]
    assert (software["server_name"], software["server_version"]) == ("triton", "2.50.0")
    assert (software["platform"], software["model_versions"]) == ("onnxruntime_onnx", "['1', '2']")
    assert len(software["inputs"]) == 12


@pytest.mark.parametrize(
    "outputs",
    [
        [{**GOOD, "data": [[0.1, 0.2, 0.7]]}],
        [GOOD, {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["cat"]}],
        [{"name": "none", "datatype": "FP32", "shape": [0], "data": []}],
        [{"name": "deep", "datatype": "INT8", "shape": [2, 1, 2], "data": [[[1, 2]], [[3, 4]]]}],
    ],
)
def test_tensors_may_be_flat_or_nested_and_of_any_type(outputs):
    with InferenceServer(answering_tensors(outputs)) as server:
        assert run(server)["errors"] == {}


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        [],
        ["y"],
        [{**GOOD, "name": None}],
        [{**GOOD, "data": [0.1, 0.2]}],
        [{**GOOD, "shape": [-1, -3]}],
        [{**GOOD, "shape": [True, 3]}],
        [{**GOOD, "shape": None}],
        [{**GOOD, "data": {"0": 1}}],
    ],
)
def test_incomplete_tensors_are_bad_answers(outputs):
    server = InferenceServer(answering_tensors(outputs))
    with server, pytest.raises(ServerError, match="2 of 2 requests failed, mostly bad_answer"):
        run(server)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e"])
def test_invalid_numbers_are_bad_json(number):
    body = b'{"outputs": [{"name": "y", "shape": [1], "data": [%b]}]}' % number
    server = InferenceServer(lambda call: call.whole(body))
    with server, pytest.raises(ServerError, match="bad_json"):
        run(server)


def test_error_of_an_unknown_model_lists_the_known_ones():
    server = InferenceServer(answering_tensors([GOOD]))
    with server, pytest.raises(ProbeConfigError, match=r"set model to one of its models \(m, n\)"):
        run(server, model="x/../y")
    assert server.posts("/infer")[0].path == "/v2/models/x%2F..%2Fy/infer"
