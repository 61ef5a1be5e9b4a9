"""Annotations over HTTP: token, rate, and errors as JSON."""

import json

import pytest
from costprobe.adapters.http.access import Secret
from costprobe.adapters.http.responses import PostRequest
from costprobe.daemon.pages import BURST, PER_S, AnnotationEndpoint
from fakes.cases import check_all
from fakes.clock import FakeClock

GOOD = "Bearer a-token-of-a-pipeline"
BODY = b'{"text": "deployed v42"}'


def stored(request):
    if "text" not in request:
        raise ValueError("text: is empty")
    return None if request["text"] == "early" else request


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def endpoint(tmp_path, clock):
    (tmp_path / "token").write_text(GOOD.split()[1] + "\n")
    return AnnotationEndpoint(Secret.of_file(tmp_path / "token", "token"), stored, clock)


def answered(endpoint, body=BODY, authorization=GOOD):
    response = endpoint.answer(PostRequest(authorization, body, "10.0.0.9"))
    assert response.content_type == "application/json"
    return response.status, json.loads(response.body), dict(response.headers)


def test_annotation_is_passed_on_with_its_client(endpoint):
    assert answered(endpoint)[:2] == (201, {"author": "10.0.0.9", "text": "deployed v42"})
    body = b'{"text": "deployed v42", "author": "ci"}'
    assert answered(endpoint, body)[1]["author"] == "ci"


def test_bad_requests_are_answered_with_an_error(endpoint):
    def check(body, authorization, status, words):
        found, document, _ = answered(endpoint, body, authorization)
        assert (found, words in document["error"]) == (status, True), document

    check_all(
        check,
        [
            (BODY, "", 401, "Authorization: Bearer"),
            (BODY, "Bearer wrong", 401, "Authorization: Bearer"),
            (BODY, GOOD.replace("Bearer", "Basic"), 401, "Authorization: Bearer"),
            (BODY, f"{GOOD}ü", 401, "Authorization: Bearer"),
            (b"", GOOD, 400, "not valid JSON"),
            (b"[]", GOOD, 400, "not a JSON object"),
            (b"[" * 4500 + b"]" * 4500, GOOD, 400, "nested"),
            (b'{"text": "\xff"}', GOOD, 400, "not UTF-8"),
            (b"{}", GOOD, 400, "text: is empty"),
            (b'{"text": "early"}', GOOD, 503, "starting or stopping"),
        ],
    )


def test_without_a_token_annotations_are_refused(clock, tmp_path):
    without = AnnotationEndpoint(None, stored, clock)
    status, document, _ = answered(without, authorization="Bearer ")
    assert (status, "http.token" in document["error"]) == (403, True)
    missing = AnnotationEndpoint(Secret.of_file(tmp_path / "none", "token"), stored, clock)
    assert answered(missing)[0] == 503


def test_rate_is_limited_only_for_clients_with_the_token(endpoint, clock):
    for _ in range(2 * BURST):
        assert answered(endpoint, authorization="Bearer wrong")[0] == 401
    assert {answered(endpoint)[0] for _ in range(BURST)} == {201}
    status, _, headers = answered(endpoint)
    assert (status, headers["Retry-After"]) == (429, f"{1 / PER_S:.0f}")
    clock.move(1 / PER_S)
    assert answered(endpoint)[0] == 201
