"""The configuration of a service: defaults, and errors with their key and fix."""

import pytest
from fakes.cases import check_all
from fakes.services import service
from pydantic import ValidationError


def test_url_gets_the_path_of_its_engine_and_keeps_the_model_of_a_router():
    expected = {
        ("vllm", "http://a:1"): "http://a:1/metrics",
        ("tensorrt_llm", "http://a:1/"): "http://a:1/prometheus/metrics",
        ("tensorrt_llm", "http://a:1/metrics"): "http://a:1/metrics",
        ("nim", "http://a:1"): "http://a:1/v1/metrics",
        ("litellm", "http://a:1"): "http://a:1/metrics/",
        ("vllm", "https://[::1]:2/deep/metrics"): "https://[::1]:2/deep/metrics",
        ("llamacpp", "http://a:1?model=o%2Fm"): "http://a:1/metrics?model=o%2Fm",
    }
    found = {case: service(engine=case[0], url=case[1]).url[0] for case in expected}
    assert found == expected


WRONG = [
    ({"url": "ftp://a"}, "a URL is http"),
    ({"url": "http://user:word@a/metrics"}, "a token goes into token"),
    ({"url": "http://a/metrics?token=1"}, "query but ?model=NAME"),
    ({"url": "http://a/metrics?model=m&key=1"}, "query but ?model=NAME"),
    ({"url": []}, "write 1 to 64 URLs"),
    ({"url": 5}, "write a URL"),
    ({"url": ["http://a", "http://a/metrics"]}, "a URL appears twice"),
    ({"devices": []}, "at least 1 item"),
    ({"devices": ["gpu0", "gpu0"]}, "a device appears twice"),
    ({"engine": "llama"}, "'vllm', 'ray_vllm', 'sglang'"),
    ({"engine": "generic"}, "needs counters"),
    ({"counters": {"requests": "a_total"}}, 'counters are not for engine = "vllm"'),
    (
        {"engine": "generic", "counters": {"errors": "a"}},
        "name requests, tokens_in or tokens_out",
    ),
    ({"engine": "generic", "counters": {"requests": "rate(a)"}}, "write the counter's name"),
    ({"engine": "generic", "counters": {"requests": 'a{b=~"x"}'}}, "write the counter's name"),
    ({"token_file": "/a"}, "token_file"),
    ({"weight_out": float("nan")}, "weight_out"),
    ({"weight_cached": 0.1}, "add weight_out"),
    ({"parameters": "large"}, "is no size of a model"),
    ({"share": 1.5}, "share"),
    ({"timeout": "3s"}, "timeout"),
    ({"window": "20s"}, "window must be at least twice as long as every"),
    ({"processes": ["a/b"]}, "a process is named as in /proc/PID/comm"),
    ({"prize": 1}, "prize"),
    ({"tenants": {}}, "label"),
    ({"tenants": {"label": "team"}}, "name the counters"),
    ({"tenants": {"label": "a b", "gateway": "litellm"}}, "a label has letters"),
    ({"tenants": {"label": "t", "gateway": "litellm", "requests": "a"}}, "are known: remove"),
    (
        {"tenants": {"label": "t", "requests": "a", "models": ["m"]}},
        "write the model as a label",
    ),
    ({"tenants": {"label": "t", "requests": "a", "token": "file:/a"}}, "for an own url"),
    ({"tenants": {"label": "t", "requests": "a", "names": 0}}, "names"),
]


def test_config_error_states_key_and_fix():
    def is_refused(keys, words):
        with pytest.raises(ValidationError) as caught:
            service(**keys)
        assert words in str(caught.value)

    check_all(is_refused, WRONG)


def test_error_does_not_quote_secrets_of_a_url():
    with pytest.raises(ValidationError) as caught:
        service(url="http://user:hunter2@a/metrics")
    assert all("hunter2" not in error["msg"] for error in caught.value.errors())
