"""The meter of a service over real HTTP: an hour of traffic, with restarts, outages and replicas."""

import random

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.core.records import NS_PER_S
from costprobe.serving.meter import ServiceMeter
from costprobe.serving.settings import ServiceConfig
from fakes.serving_engine import ServingEngine


class Time:
    """A manual clock in seconds; UTC and the monotonic clock agree."""

    def __init__(self):
        self.s = 1000.0

    def now_ns(self):
        return int(self.s * NS_PER_S)


def meter(urls, time, **keys):
    service = ServiceConfig.model_validate(
        {"name": "chat", "url": urls, "engine": "vllm", "devices": ["gpu0"], **keys}
    )
    return ServiceMeter(service, MetricsFetcher(service, None), time.now_ns, time.now_ns)


@pytest.mark.parametrize("exposes_start", [True, False])
def test_meter_counts_an_hour_of_traffic_with_restarts(exposes_start):
    random_ = random.Random(7)
    time, engine = Time(), ServingEngine(exposes_start=exposes_start)
    windows = []
    with engine.over_http() as server:
        reader = meter(server.url, time)
        assert reader.scrape().problems == ()
        for tick in range(1, 241):
            time.s += 15
            # A restart is detected at the next reading; requests since then count from zero.
            if tick in (50, 51, 130):
                engine.restart(time.s - 5)
            for model in ("base", "tuned"):
                engine.serve(model, random_.randrange(1, 9), errors=random_.randrange(2))
            windows.append(reader.close_window()) if tick % 20 == 0 else reader.scrape()
    assert len(windows) == 12
    assert [window.problems for window in windows if not window.is_complete] == []
    assert sum(window.restarts for window in windows) == 3
    assert [window.end_ns - window.start_ns for window in windows] == [300 * NS_PER_S] * 12
    for model, truth in engine.served.items():
        for measure, served in truth.items():
            counted = sum(getattr(window.models[model], measure) for window in windows)
            if exposes_start:
                assert counted == pytest.approx(served), (model, measure)
            else:
                # A new process with higher counts hides the old one's counts: never an overcount.
                assert served * 0.9 < counted <= served * (1 + 1e-9), (model, measure)


def test_failed_scrape_makes_the_window_incomplete():
    time, engine = Time(), ServingEngine()
    with engine.over_http() as server:
        reader = meter(server.url, time)
        reader.scrape()
        engine.serve(requests=3)
        engine.is_away = True
        assert "HTTP 503" in reader.scrape().problems[0]
        engine.is_away = False
        window = reader.close_window()
        assert not window.is_complete
        assert "HTTP 503" in window.problems[0]
        assert window.models["m"].requests == 3

        engine.serve(requests=4)
        assert reader.close_window().is_complete


def test_failed_scrape_at_an_edge_makes_both_windows_incomplete():
    time, engine = Time(), ServingEngine()
    with engine.over_http() as server:
        reader = meter(server.url, time)
        reader.scrape()
        engine.serve(requests=100)
        engine.is_away = True
        before = reader.close_window()
        engine.is_away = False
        engine.serve(requests=1)
        after = reader.close_window()
        # It contains requests of the window before and would have too low a cost per request.
        assert after.models["m"].requests == 101
        assert not before.is_complete
        assert after.problems == ("the scrape at its beginning failed",)
        assert reader.close_window().is_complete


def test_repeated_resets_make_the_window_incomplete():
    time, bodies = Time(), []
    service = ServiceConfig.model_validate(
        {"name": "s", "url": "http://a", "engine": "kserve", "devices": ["gpu0"]}
    )
    reader = ServiceMeter(service, lambda _: bodies.pop(0), time.now_ns, time.now_ns)
    # Two processes behind one address, both without a start time.
    bodies += [b"request_postprocess_seconds_count %d\n" % n for n in (900, 50) * 5]
    for _ in range(9):
        reader.scrape()
    window = reader.close_window()
    assert window.restarts == 5
    assert "do several processes share one address?" in window.problems[0]


def test_window_without_a_scrape_at_its_beginning_is_incomplete():
    with ServingEngine().over_http() as server:
        assert meter(server.url, Time()).close_window().problems == ("no scrape before its end",)


def test_unavailable_replica_makes_the_window_incomplete():
    time, one, two = Time(), ServingEngine(), ServingEngine(started_s=500.0)
    with one.over_http() as first, two.over_http() as second:
        reader = meter([first.url, second.url], time)
        reader.scrape()
        one.serve(requests=5)
        two.serve(requests=7)
        window = reader.close_window()
        assert window.is_complete
        assert window.models["m"].requests == 12
        two.is_away = True
        one.serve(requests=5)
        window = reader.close_window()
        assert window.problems == (f"{second.url}/metrics: HTTP 503: starting",)
        assert window.models["m"].requests == 5


def test_saturation_of_a_window_is_the_mean_over_readings():
    """Of the KV cache the mean of both servers, of waiting requests the sum."""
    now = {"http://a/metrics": (0.2, 0), "http://b/metrics": (0.4, 4)}
    page = (
        "vllm:request_success_total 1\nvllm:prompt_tokens_total 1\nvllm:generation_tokens_total 1\n"
        "vllm:kv_cache_usage_perc {}\nvllm:num_requests_waiting {}\n"
    )
    service = ServiceConfig.model_validate(
        {"name": "s", "url": list(now), "engine": "vllm", "devices": ["gpu0"]}
    )
    time = Time()
    reader = ServiceMeter(
        service, lambda url: page.format(*now[url]).encode(), time.now_ns, time.now_ns
    )
    reader.scrape()
    now = dict.fromkeys(now, (0.9, 10))
    window = reader.close_window()
    assert window.gauges == pytest.approx({"kv_cache_share": 0.6, "requests_waiting": 12})
    assert reader.close_window().gauges == pytest.approx(
        {"kv_cache_share": 0.9, "requests_waiting": 20}
    )


def test_measure_that_one_replica_lacks_is_unknown():
    texts = {
        "http://a/metrics": "vllm:request_success_total 5\nvllm:prompt_tokens_total 9\n"
        "vllm:generation_tokens_total 9\n",
        "http://b/metrics": "vllm:request_success_total 5\nvllm:generation_tokens_total 9\n",
    }
    service = ServiceConfig.model_validate(
        {"name": "s", "url": list(texts), "engine": "vllm", "devices": ["gpu0"]}
    )
    time = Time()
    reader = ServiceMeter(service, lambda url: texts[url].encode(), time.now_ns, time.now_ns)
    reader.scrape()
    window = reader.close_window()
    assert window.is_complete
    assert window.total.tokens_in is None
    assert window.total.requests == 0
    assert window.missing == ("http://b/metrics: vllm:prompt_tokens_total (tokens_in)",)


def test_series_without_a_model_belong_to_the_only_model():
    def text(errors, **models):
        rows = [f"Requests5XX {errors}\n"]
        rows += [
            f'ts_inference_requests_total{{model_name="{model}"}} {count}\n'
            for model, count in models.items()
        ]
        return "".join(rows).encode()

    service = ServiceConfig.model_validate(
        {"name": "s", "url": "http://a", "engine": "torchserve", "devices": ["gpu0"]}
    )
    time, bodies = Time(), []
    reader = ServiceMeter(service, lambda _: bodies.pop(0), time.now_ns, time.now_ns)
    bodies += [text(0, a=1), text(2, a=5), text(5, a=6, b=3)]
    reader.scrape()
    (lone,) = reader.close_window().models.values()
    assert (lone.requests, lone.errors) == (4, 2)
    models = reader.close_window().models
    assert (models["a"].requests, models["b"].requests) == (1, 3)
    assert models["a"].errors is None
    assert models[""].errors == 3


def test_problems_of_a_window_are_bounded():
    time = Time()
    calls = iter(range(10_000))

    def fetch(_):
        raise ScrapeError(f"failure {next(calls)}")

    service = ServiceConfig.model_validate(
        {"name": "s", "url": "http://a", "engine": "vllm", "devices": ["gpu0"]}
    )
    reader = ServiceMeter(service, fetch, time.now_ns, time.now_ns)
    for _ in range(100):
        reader.scrape()
    assert len(reader.close_window().problems) == 8
