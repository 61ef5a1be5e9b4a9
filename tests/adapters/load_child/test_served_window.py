"""The steady-state window of a server load: shares of requests, tokens, and the connection to the sensors."""

import itertools

import pytest
from costprobe.adapters.load_child.connection import Reply, ServerError
from costprobe.adapters.load_child.load import overlap, work_within
from costprobe.adapters.load_child.main import figures, is_cached, measure, times, tokens_counter
from fakes.inference_server import InferenceServer, Notes, answering_tensors, generating, request
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000
OUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
instants = st.integers(0, 10**12)


def reply(start, end, tokens_in=None, tokens_out=None, **more):
    return Reply(start, end, tokens_in=tokens_in, tokens_out=tokens_out, **more)


def test_request_counts_by_its_share_within_the_window():
    shares = {
        (10, 20): 1.0, (0, 10): 0.0, (30, 40): 0.0, (5, 15): 0.5, (25, 35): 0.5, (0, 40): 0.5,
        (12, 12): 1.0, (30, 30): 0.0,
    }  # fmt: skip
    assert {times: overlap(*times, 10, 30) for times in shares} == shares


@given(instants, instants, st.lists(instants, min_size=1, max_size=8))
def test_adjacent_windows_divide_each_request_completely(one, other, edges):
    start, end = sorted((one, other))
    bounds = [0, *sorted(edges), 10**12 + 1]
    shares = [overlap(start, end, a, b) for a, b in itertools.pairwise(bounds)]
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) == pytest.approx(1.0)


@given(st.integers(1, 64), st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 10**10))
def test_closed_loop_of_equal_requests_has_their_rate_in_any_window(
    concurrency, length, offset, window
):
    first, last = offset // length - 1, (offset + window) // length + 1
    replies = [
        reply(i * length, (i + 1) * length)
        for i in range(first, min(last, first + 200) + 1)
        for _ in range(concurrency)
    ]
    end = min(offset + window, replies[-1].end_ns)
    found = work_within(replies, offset, end, lambda _: None)
    assert found.requests == pytest.approx(concurrency * (end - offset) / length)


def test_tokens_count_by_the_same_shares_and_are_unknown_if_one_request_has_no_count():
    replies = [reply(0, 20, 10, 100), reply(10, 30, 10, 40), reply(28, 32, 10, 8)]
    assert work_within(replies, 10, 30, lambda x: x.tokens_out) == (2.0, 20.0, 94.0)
    replies = [reply(0, 10, 1, 1), reply(0, 10, None, 1), reply(50, 60)]
    assert work_within(replies, 0, 10, lambda x: x.tokens_out) == (2.0, None, 2.0)
    assert work_within([], 0, 10, lambda x: x.tokens_out) == (0, None, None)


def test_one_answer_without_usage_makes_all_count_by_chunks():
    counted = reply(0, 9, 5, 8, arrivals_ns=[1, 2, 3, 4])
    silent = reply(0, 9, arrivals_ns=[1, 2, 3])
    source, tokens_out = tokens_counter([counted, counted])
    assert (source, tokens_out(counted)) == ("usage", 8)
    source, tokens_out = tokens_counter([counted, silent])
    assert (source, tokens_out(counted), tokens_out(silent)) == ("chunks", 4, 3)
    source, tokens_out = tokens_counter([reply(0, 9)])
    assert (source, tokens_out(counted)) == (None, None)


def test_omitted_count_of_cached_tokens_is_zero_beside_others():
    """As vLLM answers: the first request of a prompt omits it, the others hit."""
    missed, hit = reply(0, 9, 40, 8), reply(0, 9, 40, 8)._replace(cached_tokens=32)
    for replies, cached_tokens, cached in (
        ([missed, hit, hit, hit], 24, True),
        ([missed, missed, missed, hit], 8, False),
        ([missed, missed], None, False),
    ):
        found = figures(replies, lambda x: x.tokens_out)["cached_tokens"]
        assert (found, is_cached(replies, None, varies=True)) == (cached_tokens, cached)


def test_ttft_and_tpot_follow_arrival_times_and_text_in_one_chunk_has_no_time_per_token():
    one = Reply(0, 100 * MS, [20 * MS, 30 * MS, 50 * MS, 80 * MS], 7, 5)
    found = figures([one], lambda x: x.tokens_out)
    medians_ms = [found[f"{name}_ms"]["p50"] for name in ("latency", "ttft", "tpot")]
    assert (*medians_ms, found["tokens_in"], found["tokens_out"]) == (100, 20, 15, 7, 5)
    for arrivals_ns, tokens_out in (
        (None, None), ([20, 80], 1), ([20, 80], None), ([20, 20], 5), ([20], 1),
    ):  # fmt: skip
        one = Reply(0, 100, arrivals_ns, 7, tokens_out)
        assert times(one, tokens_out)["tpot"] is None, (arrivals_ns, tokens_out)


def run(server, notes, kind="openai", min_window_s=0.3, **more):
    wanted = request(server.url, kind, energy=True, window_s=0.1, **more)
    measure(notes, wanted, min_window_s)
    (result,) = notes.of("result")
    return result


def test_energy_window_lies_within_continuous_load():
    with InferenceServer(generating(3, pause_s=0.01)) as server:
        notes = Notes()
        result = run(server, notes, requests=10, concurrency=3, tail_s=60.0)
    start, end = notes.of("window_start"), notes.of("window_end")
    assert [line["t_ns"] for line in (*start, *end)] == [
        result["window_start_ns"],
        result["window_end_ns"],
    ]
    assert result["has_energy_window"]
    assert result["window_start_ns"] - result["steady_start_ns"] >= 0.5e9
    # The sensors' minimum, although the configured window is shorter.
    assert result["window_end_ns"] - result["window_start_ns"] >= 0.3e9
    # It ends once the sensors have read its end.
    assert 0.3e9 <= result["steady_end_ns"] - result["window_end_ns"] < 60e9
    assert result["samples"] >= 10
    # By Little's law: as many requests at a time, each as long as they are.
    window_ms = (result["window_end_ns"] - result["window_start_ns"]) / MS
    assert 0 < result["inferences"] <= 3 * window_ms / (3 * 10) * 1.01
    assert result["window_tokens_out"] == pytest.approx(4 * result["inferences"])
    assert result["window_tokens_in"] == pytest.approx(7 * result["inferences"])
    phases = [line["phase"] for line in notes.of("progress")]
    assert list(dict.fromkeys(phases)) == ["warmup", "latency", "energy"]


def test_failures_before_or_within_the_window_give_no_result():
    good = answering_tensors([OUT], pause_s=0.002)
    for is_good_before, words, requests in (
        (True, "http_503", {}),
        (False, "6 of 6", {"warmup_requests": 0}),
    ):
        notes = Notes()

        def answer(call, notes=notes, is_good_before=is_good_before):
            if is_good_before and not notes.of("window_start"):
                good(call)
            else:
                call.json({}, 503)

        with InferenceServer(answer) as server, pytest.raises(ServerError, match=words):
            run(server, notes, "kserve", **requests, concurrency=1)
        assert notes.of("result") == []
        assert bool(notes.of("window_start")) is is_good_before
