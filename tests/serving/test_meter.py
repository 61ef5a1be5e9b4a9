"""The meter of a service over real HTTP: an hour of traffic, with restarts, outages and replicas."""

import itertools
import random

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.core.records import NS_PER_S
from costprobe.serving.meter import MAX_PROBLEMS, ServiceMeter
from fakes.clock import FakeClock
from fakes.services import service
from fakes.serving_engine import ServingEngine


def meter(urls, clock, fetch=None, **keys):
    config = service(url=urls, **keys)
    return ServiceMeter(config, fetch or MetricsFetcher(config), clock.time_ns, clock.monotonic_ns)


@pytest.mark.parametrize("exposes_start", [True, False])
def test_meter_counts_an_hour_of_traffic_with_restarts(exposes_start):
    random_ = random.Random(7)
    clock, engine = FakeClock(), ServingEngine(exposes_start=exposes_start)
    windows = []
    with engine.over_http() as server:
        reader = meter(server.url, clock)
        assert reader.scrape().problems == ()
        for tick in range(1, 241):
            clock.move(15)
            # A restart is detected at the next reading; requests since then count from zero.
            if tick in (50, 51, 130):
                engine.restart(clock.time_ns() / NS_PER_S - 5)
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


def test_failed_scrape_makes_its_window_incomplete_and_one_at_an_edge_both():
    clock, engine = FakeClock(), ServingEngine()
    with engine.over_http() as server:
        reader = meter(server.url, clock)
        reader.scrape()
        engine.serve(requests=3)
        engine.is_away = True
        assert "HTTP 503" in reader.scrape().problems[0]
        engine.is_away = False
        window = reader.close_window()
        assert "HTTP 503" in window.problems[0]
        assert window.models["m"].requests == 3
        engine.serve(requests=4)
        assert reader.close_window().is_complete

        engine.serve(requests=100)
        engine.is_away = True
        assert not reader.close_window().is_complete
        engine.is_away = False
        engine.serve(requests=1)
        after = reader.close_window()
        # It contains requests of the window before and would have too low a cost per request.
        assert after.models["m"].requests == 101
        assert after.problems == ("the scrape at its beginning failed",)
        assert reader.close_window().is_complete


class Replicas:
    """Servers behind one address, without a start time on their pages, and a client's own count."""

    def __init__(self, seed, policy, counted, restarts):
        self.random, self.calls = random.Random(seed), 0
        self.policy, self.restarts = policy, restarts
        self.engines = [ServingEngine(exposes_start=False) for _ in counted]
        for engine, count in zip(self.engines, counted, strict=True):
            engine.serve(requests=count)

    def work(self, most):
        for engine in self.engines:
            if self.random.random() < self.restarts:
                engine.restart(0.0)
            engine.serve(requests=self.random.randrange(most + 1))

    def served(self):
        return sum(engine.served["m"]["requests"] for engine in self.engines)

    def fetch(self, _):
        self.calls += 1
        number = self.calls if self.policy == "in turn" else self.random.randrange(99)
        if self.policy == "for long":
            number = self.calls // 100
        return self.engines[number % len(self.engines)].text().encode()


def windows_of(replicas, most=50, readings=4, windows=20):
    """Return each window, and what the servers served in it."""
    clock = FakeClock()
    reader = meter("http://a", clock, replicas.fetch)
    reader.scrape()
    found, before = [], replicas.served()
    for tick in range(1, readings * windows + 1):
        clock.move(15)
        replicas.work(most)
        if tick % readings:
            reader.scrape()
        else:
            found.append((reader.close_window(), replicas.served() - before))
            before = replicas.served()
    return found


def test_windows_of_several_processes_without_a_start_time_are_incomplete():
    wrong = [
        (policy, counted, seed, number, window.total.requests, served)
        for policy in ("in turn", "at random", "for long")
        for counted in ((100_000, 900), (1000, 900), (75_000, 900, 20_000, 5))
        for seed in range(3)
        for number, (window, served) in enumerate(windows_of(Replicas(seed, policy, counted, 0.0)))
        # One that answers for long is found at the first change to fewer counts.
        if (window.is_complete and policy != "for long") or (window.total.requests or 0) > served
    ]
    assert wrong == []


def test_restarts_without_a_start_time_never_count_too_much():
    complete = lost = 0
    for most in (1, 50, 5000):
        for seed in range(5):
            for window, served in windows_of(Replicas(seed, "in turn", (1000,), 0.01), most):
                assert window.total.requests is None or window.total.requests <= served
                complete += window.is_complete
                lost += served - window.total.requests if window.is_complete else 0
    # Few of the 300 are incomplete: a doubt lasts for five of them.
    assert complete > 230


def test_removed_counters_of_a_worker_are_no_restart():
    """A file of a Prometheus multiprocess folder: its part of each counter is gone."""
    clock, engine, gone = FakeClock(), ServingEngine(exposes_start=False), 0

    def fetch(_):
        count = float(engine.served["m"]["requests"])
        return engine.text().replace(str(count), str(count - gone)).encode()

    engine.serve(requests=100_000)
    reader = meter("http://a", clock, fetch)
    reader.scrape()
    windows = []
    for tick in range(1, 41):
        clock.move(15)
        engine.serve(requests=5)
        gone = 25_000 if tick > 6 else 0
        windows.append(reader.close_window()) if tick % 4 == 0 else reader.scrape()
    counted = [(window.total.requests, window.is_complete) for window in windows]
    assert counted == [(20, True), *[(0, False)] * 5, (10, False), *[(20, True)] * 3]
    assert "the counters of one of its workers were removed" in windows[1].problems[0]


def test_negative_observation_in_a_histograms_sum_is_no_restart():
    pages = [
        f"answers_count {100 + 4 * tick}\nanswers_tokens_sum {tokens}\n".encode()
        for tick, tokens in enumerate((50.0, 52.0, 51.5, 53.0))
    ]

    counters = {"requests": "answers_count", "tokens_in": "answers_tokens_sum"}
    reader = meter("http://a", FakeClock(), lambda _: pages[0], engine="generic", counters=counters)
    reader.scrape()
    for tokens in (2.0, 0.0, 1.5):
        del pages[0]
        window = reader.close_window()
        assert (window.problems, window.restarts, window.total.requests) == ((), 0, 4)
        assert window.total.tokens_in == tokens


def test_server_that_crashes_in_a_loop_makes_its_windows_incomplete():
    """Also if no window has many readings, and its start time is shown."""
    clock, engine = FakeClock(), ServingEngine()
    with engine.over_http() as server:
        reader = meter(server.url, clock)
        reader.scrape()
        found = []
        for tick in range(12):
            clock.move(15)
            engine.restart(clock.time_ns() / NS_PER_S - 5) if tick % 2 else None
            engine.serve(requests=1)
            found.append(reader.close_window())
    assert [window.is_complete for window in found] == [*[True] * 7, *[False] * 5]
    assert "does the server crash in a loop" in found[-1].problems[-1]


def test_unavailable_replica_makes_the_window_incomplete():
    clock, one, two = FakeClock(), ServingEngine(), ServingEngine(started_s=500.0)
    with one.over_http() as first, two.over_http() as second:
        reader = meter([first.url, second.url], clock)
        assert reader.close_window().problems == ("no scrape before its end",)
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


def test_measure_that_one_replica_lacks_is_unknown():
    both = "vllm:request_success_total 5\nvllm:generation_tokens_total 9\n"
    texts = {"http://a/metrics": both + "vllm:prompt_tokens_total 9\n", "http://b/metrics": both}
    reader = meter(list(texts), FakeClock(), lambda url: texts[url].encode())
    reader.scrape()
    window = reader.close_window()
    assert (window.is_complete, window.total.requests, window.total.tokens_in) == (True, 0, None)
    assert window.missing == ("http://b/metrics: vllm:prompt_tokens_total (tokens_in)",)


def test_saturation_of_a_window_is_the_mean_over_readings():
    """Of the KV cache the mean of both servers, of waiting requests the sum."""
    now = {"http://a/metrics": (0.2, 0), "http://b/metrics": (0.4, 4)}
    page = "vllm:kv_cache_usage_perc {}\nvllm:num_requests_waiting {}\n"
    reader = meter(list(now), FakeClock(), lambda url: page.format(*now[url]).encode())
    reader.scrape()
    now = dict.fromkeys(now, (0.9, 10))
    gauges = reader.close_window().gauges
    assert gauges == pytest.approx({"kv_cache_share": 0.6, "requests_waiting": 12})


def test_problems_of_a_window_are_bounded():
    calls = itertools.count()

    def fetch(_):
        raise ScrapeError(f"failure {next(calls)}")

    reader = meter("http://a", FakeClock(), fetch)
    for _ in range(100):
        reader.scrape()
    assert len(reader.close_window().problems) == MAX_PROBLEMS


def test_series_without_a_model_belong_to_the_only_model():
    def text(errors, **models):
        row = 'ts_inference_requests_total{{model_name="{}"}} {}\n'
        rows = (row.format(*item) for item in models.items())
        return "".join([f"Requests5XX {errors}\n", *rows]).encode()

    bodies = [text(0, a=1), text(2, a=5), text(5, a=6, b=3)]
    reader = meter("http://a", FakeClock(), lambda _: bodies[0], engine="torchserve")
    reader.scrape()
    del bodies[0]
    (lone,) = reader.close_window().models.values()
    assert (lone.requests, lone.errors) == (4, 2)
    del bodies[0]
    models = reader.close_window().models
    assert (models["a"].requests, models["b"].requests) == (1, 3)
    assert models["a"].errors is None
    assert models[""].errors == 3
