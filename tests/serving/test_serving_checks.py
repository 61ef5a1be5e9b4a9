"""The checks that `doctor` makes of a service's metrics."""

import pytest
from costprobe.serving.settings import ServiceConfig
from costprobe.ui.cli.support.serving_checks import service_checks
from fakes.inference_server import InferenceServer


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
