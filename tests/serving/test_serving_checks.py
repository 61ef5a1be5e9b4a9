"""The checks that `doctor` makes of a service's metrics."""

import itertools

import pytest
from costprobe.serving.settings import ServiceConfig
from costprobe.ui.cli.support.serving_checks import service_checks
from fakes.inference_server import InferenceServer
from fakes.serving_engine import ServingEngine


def checked(answer, engine):
    with InferenceServer(answer) as running:
        keys = {"name": "s", "url": running.url, "engine": engine, "devices": ["gpu0"]}
        (check,) = service_checks([ServiceConfig.model_validate(keys)], {})
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
