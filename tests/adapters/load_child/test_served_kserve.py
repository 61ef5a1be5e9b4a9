"""Probes of servers with the Open Inference Protocol, against small HTTP servers."""

import json

import pytest
from costprobe.adapters.load_child.connection import ServerError
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import InferenceServer, answering_tensors, measured, request
from record.record_files import check_outcomes

GOOD = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.7]}


def run(server, **more):
    return measured(server.url, "kserve", **more)


@pytest.mark.parametrize("version", [None, "2"])
def test_requests_are_counted_and_timed_without_tokens(version):
    with InferenceServer(answering_tensors([GOOD], pause_s=0.005)) as server:
        result = run(server, version=version, warmup_requests=1, requests=9, concurrency=3)
        inferences = server.posts("/infer")
    assert len(inferences) == 10
    assert (result["samples"], result["inferences"]) == (9, 9)
    assert result["latency_ms"]["p50"] >= 5
    names = ("ttft_ms", "tpot_ms", "tokens_in", "tokens_out", "token_source", "window_tokens_out")
    assert {result[name] for name in names} == {None}
    assert inferences[0].body == {"inputs": request("", "kserve")["inputs"]}
    assert inferences[0].path == f"/v2/models/m{'/versions/2' * bool(version)}/infer"
    # Metadata of server and model.
    software = result["software"]
    assert software["version"] == (version or "server default")
    assert (software["server_name"], software["server_version"]) == ("triton", "2.50.0")
    assert version or software["platform"] == "onnxruntime_onnx"
    assert version or software["model_versions"] == "['1', '2']"
    assert len(software["inputs"]) == 12


def test_answers_of_the_response_cache_are_marked():
    # Of 2 + 6 requests all but the first hit, none hit, or the server does not count.
    for cache_hits, cached in ((1, True), (99, False), (None, None)):
        with InferenceServer(answering_tensors([GOOD], cache_hits=cache_hits)) as server:
            assert run(server)["cached"] is cached, cache_hits


def test_incomplete_tensors_and_invalid_numbers_fail():
    """Whole bodies, or the outputs of one."""

    def error_of(text):
        is_body = text.startswith('{"outputs"')
        outputs = answering_tensors(None if is_body else json.loads(text))
        answer = (lambda call: call.whole(text.encode())) if is_body else outputs
        with InferenceServer(answer) as server, pytest.raises(ServerError) as raised:
            run(server)
        return str(raised.value).partition(": ")[2]

    check_outcomes("invalid_tensors.json", error_of)


def test_error_of_an_unknown_model_lists_the_known_ones():
    server = InferenceServer(answering_tensors([GOOD]))
    with server, pytest.raises(ProbeConfigError, match=r"set model to one of its models \(m, n\)"):
        run(server, model="x/../y")
    assert server.posts("/infer")[0].path == "/v2/models/x%2F..%2Fy/infer"
