"""The service level of a service in production: planted times of requests, counted from histograms."""

from contextlib import ExitStack, closing

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import read_counters
from costprobe.adapters.engines.tables import ENGINES
from costprobe.adapters.store.read import StoreReader
from costprobe.core.schema import PAID_FIELDS, SERVICE_FIELDS, SLO_FIELDS
from costprobe.ui.cli.support.checks import service_checks
from costprobe.ui.cli.views.status_lines import service_lines
from costprobe.unit_costs.compare import service_candidates
from costprobe.unit_costs.now import unit_groups
from fakes.services import service, service_table
from fakes.serving_bench import ServingBench
from fakes.serving_engine import TIMES, ServingEngine

ALL = tuple(TIMES)


@pytest.fixture
def bench(tmp_path):
    """Make a host that reads engines, with keys of the section of its service."""
    with ExitStack() as stack:

        def make(*engines, slo, **keys):
            urls = [stack.enter_context(engine.over_http()).url for engine in engines]
            text = service_table("chat", urls[0], "gpu0", **keys)
            listed = ", ".join(f'"{url}"' for url in urls)
            text = text.replace(f'url = "{urls[0]}"', f"url = [{listed}]")
            at_work = ServingBench(tmp_path, f"{text}slo = {{ {slo} }}\n")
            stack.callback(at_work.store.close)
            return at_work

        yield make


def window(at_work, *, length_s=300):
    at_work.move(length_s)
    at_work.close()


def counts(at_work):
    """Requests and those within it by bound, of each window."""
    return [
        (row.tags["bound"], row.fields["requests"], row.fields["requests_met"])
        for row in at_work.rows("slo")
    ]


def test_requests_within_each_bound_are_counted(bench):
    """By hand: 80 of 100 first tokens within 500 ms, 95 within a second; 60 within 25 ms a token."""
    engine = ServingEngine(times=ALL)
    at_work = bench(
        engine, slo='ttft_p50 = "500ms", ttft_p99 = "1s", tpot_p90 = "30ms", latency_p90 = "9s"'
    )
    engine.serve(requests=100)
    for figure, seconds, requests in (
        ("ttft", 0.2, 80),
        ("ttft", 0.9, 15),
        ("ttft", 4.0, 5),
        ("tpot", 0.02, 60),
        # Between two edges, so surely within neither 30 ms nor 25 ms.
        ("tpot", 0.03, 40),
        ("latency", 3.0, 99),
        ("latency", 10.0, 1),
    ):
        engine.observe(figure, seconds, requests)
    window(at_work)
    assert sorted(counts(at_work)) == [
        ("latency_p90", 100, 99),
        ("tpot_p90", 100, 60),
        ("ttft_p50", 100, 80),
        ("ttft_p99", 100, 95),
    ]
    rows = {row.tags["bound"]: row for row in at_work.rows("slo")}
    within = {name: (row.fields["bound_ms"], row.fields["within_ms"]) for name, row in rows.items()}
    assert within == {
        "latency_p90": (9000, 5000),
        "tpot_p90": (30, 25),
        "ttft_p50": (500, 500),
        "ttft_p99": (1000, 1000),
    }
    (status,) = at_work.serving.status()
    lines = [line.strip() for line in service_lines(status)]
    priced = "ttft_p50 500 ms: 80.00 % of 100 requests, objective 50 %; $3.86 per 1,000 requests within it"
    assert priced in lines
    assert [
        line for line in lines if line.startswith("tpot_p90 30 ms (counted up to 25 ms): 60.00")
    ]
    shares = {one["bound"]: one for one in status["last"]["slo"]}
    assert shares["ttft_p50"]["cost_per_request_met"] == pytest.approx(0.309 / 80)


def test_counts_add_up_over_windows_replicas_and_restarts(bench):
    engines = ServingEngine(times=ALL), ServingEngine(times=ALL)
    at_work = bench(*engines, slo='ttft_p90 = "500ms"')
    for number, (fast, slow) in enumerate(((10, 1), (20, 2), (30, 3))):
        for engine in engines:
            if number == 2:
                engine.restart(at_work.clock.time_ns() / 1e9)
            engine.serve(requests=fast + slow)
            engine.observe("ttft", 0.3, fast)
            engine.observe("ttft", 3.0, slow)
        window(at_work)
    engines[0].is_away = True
    engines[1].serve(requests=4)
    engines[1].observe("ttft", 0.3, 4)
    window(at_work)
    assert counts(at_work) == [
        *(("ttft_p90", 22, 20), ("ttft_p90", 44, 40), ("ttft_p90", 66, 60)),
        # Also of a window without a cost: a server that does not answer is what a service level is about.
        ("ttft_p90", 4, 4),
    ]
    assert at_work.rows("serving")[-1].fields["complete"] is False


def test_what_is_not_known_has_no_row_and_is_said(bench):
    """A version without a histogram, and a bound below the lowest edge; the cost is known all the same."""
    engine = ServingEngine(times=("tpot",))
    at_work = bench(engine, slo='ttft_p90 = "500ms", tpot_p50 = "5ms", tpot_p99 = "120ms"')
    engine.serve(requests=10)
    engine.observe("tpot", 0.06, 10)
    window(at_work)
    assert counts(at_work) == [("tpot_p99", 10, 10)]
    assert at_work.rows("cost")[0].fields["requests"] == 10
    missing = at_work.rows("serving")[0].fields["missing"]
    assert "vllm:time_to_first_token_seconds_bucket up to 0.5 s (ttft_p90)" in missing
    assert "vllm:request_time_per_output_token_seconds_bucket up to 0.005 s (tpot_p50)" in missing
    (config,) = at_work.config.service
    (check,) = service_checks([config])
    assert (check.state, "ttft_p90" in check.detail) == ("bad", True)
    assert check.fix.startswith("remove these bounds of slo, or update the server")
    known = config.slo.model_copy(update={"ttft_p90_s": None, "tpot_p50_s": None})
    (check,) = service_checks([config.model_copy(update={"slo": known})])
    words = "tpot_p99 up to 100 ms, the edge of a bucket below 120 ms"
    assert (check.state, words in check.detail) == ("good", True)


def test_bounds_that_an_engine_never_times_are_refused():
    """Each engine with its own histograms only: the time per token of TGI contains prefill."""
    wrong = []
    for name, engine in ENGINES.items():
        for figure in ALL:
            try:
                service(engine=name, slo={f"{figure}_p90": "1s"})
            except ValueError as error:
                if figure in engine.histograms or f"remove {figure}_p90" not in str(error):
                    wrong.append((name, figure, str(error)))
            else:
                if figure not in engine.histograms:
                    wrong.append((name, figure, "taken"))
    assert wrong == []
    with pytest.raises(ValueError, match="slo has no effect without url"):
        service(group="g", role="worker", url=(), slo={"ttft_p90": "1s"})
    with pytest.raises(ValueError, match="generic has no histogram"):
        service(engine="generic", counters={"requests": "a_total"}, slo={"latency_p90": "1s"})


def test_edges_of_a_page_are_bounded_and_checked():
    """Edges that are no numbers count nothing; a bucket that falls back is no counter."""
    engine = ENGINES["vllm"].judging({"ttft_p90": 500.0})
    name = "vllm:time_to_first_token_seconds_bucket"
    page = "".join(f'{name}{{le="{le}"}} {n}\n' for le, n in (("x", 9), ("0.4", 3), ("nan", 8)))
    found = read_counters(f"{page}{name} 7\n".encode(), engine)
    assert [value.value for value in found.measures["ttft_p90"].series.values()] == [3]
    assert (found.measures["ttft_p90"].edge, found.measures["ttft"].edge) == (0.4, 0.4)
    with pytest.raises(ScrapeError, match="is -1, which is not a valid counter"):
        read_counters(f'{name}{{le="0.4"}} -1\n'.encode(), engine)


def test_compare_and_the_page_show_the_sums(bench):
    engine = ServingEngine(times=ALL)
    at_work = bench(engine, slo='ttft_p90 = "500ms"')
    for fast in (70, 90):
        engine.serve(requests=100)
        engine.observe("ttft", 0.3, fast)
        engine.observe("ttft", 3.0, 100 - fast)
        window(at_work)
    with closing(StoreReader.open(at_work.store.path)) as reader:
        costs, timed = (
            reader.columns(name, 0, 2**62, fields=fields)
            for name, fields in (("cost", PAID_FIELDS | SERVICE_FIELDS), ("slo", SLO_FIELDS))
        )
        (candidate,) = service_candidates(costs, {}, timed)
        (group,) = unit_groups(reader, at_work.clock.time_ns())
    for (one,) in (candidate.slo, group.typical.slo):
        assert (one.requests, one.requests_met, one.met_share) == (200, 160, 0.8)
        assert one.is_missed
