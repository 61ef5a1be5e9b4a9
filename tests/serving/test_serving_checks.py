"""The checks that `doctor` makes of a service's metrics."""

import itertools

import pytest
from costprobe.serving.settings import ServiceConfig
from costprobe.ui.cli.support.checks import service_checks
from fakes.inference_server import InferenceServer
from fakes.serving_engine import ServingEngine


def checked(answer, engine, query="", **more):
    with InferenceServer(answer) as running:
        keys = {"name": "s", "url": running.url + query, "engine": engine, "devices": ["gpu0"]}
        (check,) = service_checks([ServiceConfig.model_validate({**keys, **more})])
    return check


@pytest.mark.parametrize(
    ("engine", "fix"),
    [
        ("torchserve", "set metrics_mode=prometheus at the server"),
        ("vllm", "set the option that enables its metrics at the server"),
    ],
)
def test_empty_page_of_metrics_is_named_with_its_fix(engine, fix):
    check = checked(lambda call: call.whole(b""), engine)
    assert check.state == "bad"
    assert check.detail.endswith("/metrics: the page of metrics is empty")
    assert check.fix == fix


def test_refused_page_names_the_option_of_the_engine():
    check = checked(lambda call: call.whole(b"no", status=501), "llamacpp")
    assert "HTTP 501" in check.detail
    assert "set --metrics at the server" in check.fix


def test_server_that_a_reading_would_start_is_noted_and_not_read():
    """Knative's activator and queue-proxy answer their probe header; llama-server states that it sleeps."""
    read = []

    def answer(pages):
        def call_answer(call):
            name = call.path.split("?")[0].rsplit("/", 1)[-1]
            if "K-Network-Probe" in call.headers and "probe" in pages:
                call.whole(*pages["probe"])
                return
            read.append(name)
            call.whole(*pages.get(name, [b"{}"]))

        return call_answer

    page = b"llamacpp:prompt_tokens_total 1\nllamacpp:tokens_predicted_total 1\n"
    old, new = b'{"build_info": "b10518-a", "is_sleeping": %s}', b'{"build_info": "b10519-a"}'
    models = b'{"data": [{"id": "o", "aliases": ["m"], "status": {"value": "%s"}}]}'
    cases = {
        "activator": ({"probe": [b'unexpected probe header value: "queue"', 400]}, "", "Knative"),
        "queue-proxy": ({"probe": [b"queue"]}, "", "Knative"),
        "asleep": ({"props": [old % b"true"]}, "", "its model is not loaded"),
        "unloaded": (
            {"props": [new], "models": [models % b"unloaded"]},
            "?model=m",
            "its model is not loaded",
        ),
        "awake, old": (
            {"props": [old % b"false"], "metrics": [page]},
            "",
            "restarts its idle timer",
        ),
        "awake, new": ({"props": [new], "metrics": [page]}, "", ""),
        "loaded": (
            {"props": [new], "models": [models % b"loaded"], "metrics": [page]},
            "?model=m",
            "",
        ),
    }
    wrong = []
    for name, (pages, query, words) in cases.items():
        read.clear()
        check = checked(answer(pages), "llamacpp", query)
        is_read = "metrics" in read
        expected = ("note" if words else "good", "metrics" in pages)
        if (check.state, is_read) != expected or words not in check.detail:
            wrong.append((name, check, read[:]))
    assert not wrong


@pytest.mark.parametrize("exposes_start", [False, True])
def test_load_balancer_before_two_replicas_is_named(exposes_start):
    replicas = [
        ServingEngine(started_s, exposes_start=exposes_start) for started_s in (500.0, 900.0)
    ]
    for replica, requests in zip(replicas, (9000, 40), strict=True):
        replica.serve(requests=requests)
    turns = itertools.cycle(replicas)
    check = checked(lambda call: next(turns).answer(call), "vllm")
    assert check.state == "bad"
    assert "several processes share this address" in check.detail


def test_models_whose_size_is_assumed_are_named():
    served = ServingEngine()
    for model in ("llama-70B", "sql", "chat"):
        served.serve(model)
    check = checked(served.answer, "vllm")
    assert check.state == "note"
    assert check.detail.endswith(
        "of 3 models chat and 1 more share the cost as if of 8B parameters"
    )
    assert "set parameters to the size of their base model" in check.fix
    assert checked(served.answer, "vllm", parameters="70B").state == "good"
    assert checked(served.answer, "vllm", models=["llama-70B"]).state == "good"
    # The same size is assumed for all.
    assert checked(served.answer, "vllm", models=["sql", "chat"]).state == "good"
