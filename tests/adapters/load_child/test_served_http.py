"""Probes of any HTTP server: the request as configured, and the items of its responses."""

import pytest
from costprobe.adapters.load_child.clients import items_at
from costprobe.adapters.load_child.connection import Failure, ServerError
from costprobe.adapters.probe_child.results import read_result
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import InferenceServer, measured

ANSWER = {"predictions": [[0.1], [0.9], [0.4]], "usage": {"items": 3}}


def run(server, **more):
    own = {"method": "POST", "body_file": None, "content_type": "application/json"}
    own |= {"status": 200, "items": None, "model": server.url}
    return measured(f"{server.url}/predict", "http", **{**own, **more})


def answering(call):
    call.json(ANSWER)


def test_request_is_sent_as_configured_and_each_item_is_an_inference(tmp_path):
    body, key = tmp_path / "body.json", tmp_path / "key"
    body.write_text('{"rows": 3}')
    key.write_text("secret-key\n")
    with InferenceServer(answering) as server:
        result = run(
            server,
            body_file=str(body),
            headers={"X-Team": "ml"},
            key_file=str(key),
            key_header="X-Api-Key",
            items="/predictions",
            warmup_requests=1,
            requests=6,
        )
        sent = server.posts("/predict")
    assert len(sent) == 7
    assert sent[0].body == {"rows": 3}
    assert (sent[0].headers["X-Team"], sent[0].headers["X-Api-Key"]) == ("ml", "secret-key")
    found = read_result(result, probe="ranker", device="gpu0")
    assert (found.batch, found.inferences) == (3, 18)


def test_other_answers_fail_with_their_reason(tmp_path):
    wrong = []
    with InferenceServer(answering) as server:
        for more, words in (
            ({"status": 201}, "expected HTTP 201"),
            ({"items": "/nothing"}, "no items at /nothing"),
            ({"body_file": str(tmp_path / "none")}, "cannot be read"),
        ):
            with pytest.raises((ServerError, ProbeConfigError)) as failed:
                run(server, **more)
            wrong += [(more, str(failed.value))] if words not in str(failed.value) else []
    assert wrong == []


def test_items_are_a_list_or_a_number_at_a_place():
    document = {"a/b": [{"n": 4, "none": []}], "text": "x", "yes": True}
    for pointer, items in (("/a~1b", 1), ("/a~1b/0/n", 4)):
        assert items_at(document, pointer) == items
    for pointer in ("/a~1b/0/none", "/a~1b/1", "/a~1b/x", "/text", "/yes", "/nothing", "/text/0"):
        with pytest.raises(Failure):
            items_at(document, pointer)
