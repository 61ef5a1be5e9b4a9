"""Probes of servers that speak the open inference protocol, on small real ones."""

import pytest
from fakes.inference_server import InferenceServer, Notes, answering_tensors, request

from probes.errors import ConfigError
from probes.served.outcome import ServerError
from probes.served.session import ServedSession

GOOD = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.7]}


def run(server, **more):
    notes = Notes()
    ServedSession(notes).run(request(server.url, "kserve", **more))
    (result,) = notes.of("served_result")
    return result


@pytest.mark.parametrize("version", [None, "2"])
def test_requests_are_counted_and_timed_and_have_no_tokens(version):
    with InferenceServer(answering_tensors([GOOD], pause_s=0.005)) as server:
        result = run(server, version=version, warmup_requests=1, requests=9, concurrency=3)
        inferences = server.posts("/infer")
    assert len(inferences) == 10
    assert (result["samples"], result["region_requests"]) == (9, 9)
    assert result["latency_ms"]["p50"] >= 5
    for name in ("ttft_ms", "tpot_ms", "tokens_in", "tokens_out", "token_source"):
        assert result[name] is None
    assert result["region_tokens_out"] is None
    assert result["software"]["version"] == (version or "as the server chooses")
    assert inferences[0].body == {"inputs": request("", "kserve")["inputs"]}
    assert inferences[0].path == f"/v2/models/m{'/versions/2' * bool(version)}/infer"


def test_what_the_server_says_of_itself_and_the_model_is_told():
    with InferenceServer(answering_tensors([GOOD])) as server:
        told = run(server)["software"]
    assert (told["server_name"], told["server_version"]) == ("triton", "2.50.0")
    assert (told["platform"], told["model_versions"]) == ("onnxruntime_onnx", "['1', '2']")
    assert len(told["inputs"]) == 12


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
def test_tensors_that_are_not_whole_are_no_answer(outputs):
    server = InferenceServer(answering_tensors(outputs))
    with server, pytest.raises(ServerError, match="2 of 2 requests failed, mostly bad_answer"):
        run(server)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e"])
def test_numbers_that_are_none_are_no_json(number):
    body = b'{"outputs": [{"name": "y", "shape": [1], "data": [%b]}]}' % number
    server = InferenceServer(lambda call: call.whole(body))
    with server, pytest.raises(ServerError, match="bad_json"):
        run(server)


def test_an_unknown_model_is_told_with_those_that_there_are():
    server = InferenceServer(answering_tensors([GOOD]))
    with server, pytest.raises(ConfigError, match=r"set model to one that it offers \(m, n\)"):
        run(server, model="x/../y")
    assert server.posts("/infer")[0].path == "/v2/models/x%2F..%2Fy/infer"
