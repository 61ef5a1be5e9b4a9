"""A service's meter over real HTTP: an hour of traffic, with restarts, outages and replicas."""

import random

import pytest
from fakes.serving_engine import ServingEngine

from agent.config_service import ServiceConfig
from agent.model import NS_PER_S
from agent.serving.errors import ScrapeError
from agent.serving.fetch import Access, Fetcher
from agent.serving.meter import ServiceMeter


class Time:
    """Seconds that pass when a test says so; UTC and the monotonic clock agree."""

    def __init__(self):
        self.s = 1000.0

    def now_ns(self):
        return int(self.s * NS_PER_S)


def meter(urls, time, **keys):
    service = ServiceConfig.model_validate(
        {"name": "chat", "url": urls, "engine": "vllm", "devices": ["gpu0"], **keys}
    )
    return ServiceMeter(service, Fetcher(Access(timeout_s=5.0)), time.now_ns, time.now_ns)


@pytest.mark.parametrize("tells_start", [True, False])
def test_an_hour_of_traffic_with_restarts(tells_start):
    random_ = random.Random(7)
    time, engine = Time(), ServingEngine(tells_start=tells_start)
    windows = []
    with engine.over_http() as server:
        reader = meter(server.url, time)
        assert reader.scrape().problems == ()
        for tick in range(1, 241):
            time.s += 15
            # A restart is seen at the next reading; what is served meanwhile counts from zero.
            if tick in (50, 51, 130):
                engine.restart(time.s - 5)
            for model in ("base", "tuned"):
                engine.serve(model, random_.randrange(1, 9), errors=random_.randrange(2))
            windows.append(reader.close_window()) if tick % 20 == 0 else reader.scrape()
    assert len(windows) == 12
    assert all(window.is_complete for window in windows)
    assert sum(window.restarts for window in windows) == 3
    assert [window.end_ns - window.start_ns for window in windows] == [300 * NS_PER_S] * 12
    for model, truth in engine.served.items():
        for measure, served in truth.items():
            counted = sum(getattr(window.models[model], measure) for window in windows)
            if tells_start:
                assert counted == pytest.approx(served), (model, measure)
            else:
                # A new process that overtook the old one's few counts hides them: never more.
                assert served * 0.9 < counted <= served * (1 + 1e-9), (model, measure)


def test_a_reading_that_failed_makes_the_window_incomplete():
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


def test_an_edge_that_failed_makes_the_windows_on_both_sides_incomplete():
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
        # It holds the requests of the window before and would look cheap.
        assert after.models["m"].requests == 101
        assert not before.is_complete
        assert after.problems == ("its beginning could not be read",)
        assert reader.close_window().is_complete


def test_counters_that_begin_anew_again_and_again_are_not_counted_across():
    time, bodies = Time(), []
    service = ServiceConfig.model_validate(
        {"name": "s", "url": "http://a", "engine": "kserve", "devices": ["gpu0"]}
    )
    reader = ServiceMeter(service, lambda _: bodies.pop(0), time.now_ns, time.now_ns)
    # Two processes behind one address, neither of which tells when it began.
    bodies += [b"request_predict_seconds_count %d\n" % n for n in (900, 50) * 5]
    for _ in range(9):
        reader.scrape()
    window = reader.close_window()
    assert window.restarts == 5
    assert "do several processes answer at one address?" in window.problems[0]


def test_a_window_without_a_reading_at_its_beginning_is_incomplete():
    with ServingEngine().over_http() as server:
        assert meter(server.url, Time()).close_window().problems == (
            "nothing was read before its end",
        )


def test_one_of_two_replicas_that_is_away_makes_the_window_incomplete():
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
        assert window.problems == (f"{second.url}/metrics: HTTP 503",)
        assert window.models["m"].requests == 5


def test_one_of_two_replicas_that_lacks_a_measure_leaves_it_unknown():
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


def test_what_names_no_model_is_a_lone_models_and_otherwise_of_the_whole():
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


def test_a_server_that_fails_without_end_fills_no_memory():
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
