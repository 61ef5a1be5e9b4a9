"""A point of a load curve: its prompts, its schedule, the requests that count, and their figures."""

import itertools
import json
from array import array
from random import Random

import pytest
from costprobe.adapters.load_child.connection import Reply
from costprobe.adapters.load_child.load import Outcomes, PoissonArrivals
from costprobe.adapters.load_child.main import (
    cohort,
    decode_steps,
    in_flight,
    load_figures,
    measure,
    tokens_within,
)
from costprobe.adapters.load_child.prompts import Prompts, draw_length, read_prompts
from costprobe_probes.stats import ProbeWindow
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import InferenceServer, Notes, answering_tensors, generating, request

MS = 1_000_000
S = 1000 * MS
LOAD = {
    "loop": "closed", "concurrency": 2, "rate_per_s": None, "warmup_s": 0.05, "window_s": 0.2,
    "window_max_s": 0.3, "samples": 4, "tokens_in": None, "tokens_out": None, "prompts": None,
    "shared_prefix": 0.0, "ignore_eos": True, "slo_ms": {}, "seed": 1,
}  # fmt: skip
WINDOW = ProbeWindow(0, 10 * S, 20 * S, 21 * S)


def scripted(begin, ttft, tpot, tokens, *, wait=0):
    """A request of a server with known times in ms; begun ns, sent `wait` ns later."""
    first = begin + wait + ttft * MS
    arrivals = array("q", (first + index * tpot * MS for index in range(tokens)))
    scheduled_ns = begin if wait else None
    return Reply(begin + wait, arrivals[-1], arrivals, 100, tokens, scheduled_ns=scheduled_ns)


def tokens_of(reply):
    return reply.tokens_out


def closed_loop(connections, times):
    """Requests of connections that each send the next one when the last has ended, over 30 s."""
    replies = []
    for connection in range(connections):
        begin = connection * 7 * MS
        while begin < 30 * S:
            replies.append(scripted(begin, *times(len(replies))))
            begin = replies[-1].end_ns
    return Outcomes(replies, [])


def test_figures_of_a_closed_loop_are_those_of_the_server():
    outcomes = closed_loop(8, lambda _: (40, 10, 33))  # 360 ms a request
    members = cohort(outcomes, WINDOW, None)
    found = load_figures(members, WINDOW, {"ttft": 40, "tpot": 9}, tokens_of)
    assert {name: found[f"{name}_ms"]["p90"] for name in ("latency", "ttft", "tpot", "itl")} == {
        "latency": 360, "ttft": 40, "tpot": 10, "itl": 10,
    }  # fmt: skip
    assert (members.ended.failed, members.unfinished, found["goodput_per_s"]) == ([], 0, 0.0)
    assert in_flight(outcomes, WINDOW) == pytest.approx(8)
    rate = tokens_within(outcomes.replies, WINDOW, tokens_of) / 10
    assert rate == pytest.approx(8 * 33 / 0.36, rel=0.02)


def test_a_long_answer_that_ends_after_the_window_counts():
    # Every tenth request is a straggler of 8 s: those that begin and end within 10 s are too few.
    outcomes = closed_loop(40, lambda n: (20, 1000 if n % 10 == 9 else 20, 9))
    found = load_figures(cohort(outcomes, WINDOW, None), WINDOW, {}, tokens_of)
    share = sum(x.end_ns - x.start_ns > S for x in outcomes.replies) / len(outcomes.replies)
    slow = found["latency_ms"]["mean"]
    assert slow == pytest.approx(share * 8020 + (1 - share) * 180, rel=0.1)


def test_open_loop_counts_from_the_scheduled_instant():
    # A server that is stopped for 2 s: each request of that time waits for its end.
    def reply(begin):
        wait = max(0, 14 * S - begin) if 12 * S <= begin < 14 * S else 0
        return scripted(begin, 10, 5, 3, wait=wait or 1)

    outcomes = Outcomes([reply(begin) for begin in range(0, 30 * S, 10 * MS)], [])
    found = load_figures(cohort(outcomes, WINDOW, 1000), WINDOW, {"ttft": 50}, tokens_of)
    # 200 of 1,000 requests wait 1 s in the mean, which sending late would have hidden.
    assert found["ttft_ms"]["mean"] == pytest.approx(10 + 0.2 * 1000, rel=0.02)
    assert found["ttft_ms"]["p90"] == pytest.approx(1010, rel=0.02)
    assert found["goodput_per_s"] == pytest.approx(80, rel=0.02)
    assert found["late_ms"] == pytest.approx(200, rel=0.02)


def test_requests_without_an_answer_are_errors():
    replies = [scripted(begin, 10, 5, 3) for begin in range(10 * S, 20 * S, S)]
    failed = [Reply(12 * S, 13 * S, failure="http_503"), Reply(1, 2, failure="http_503")]
    members = cohort(Outcomes(replies, failed), WINDOW, 15)
    found = load_figures(members, WINDOW, {}, tokens_of)
    assert (len(members.ended.replies), members.ended.failed, members.unfinished) == (
        10,
        failed[:1],
        4,
    )
    assert found["goodput_per_s"] is None
    # Ten requests support neither percentile.
    assert found["ttft_ms"].keys() == {"p50", "mean", "cv"}


def test_tokens_that_arrive_outside_the_window_do_not_count():
    # At 9.5, 13.1, 16.7 and 20.3 s.
    reply = scripted(9 * S, 500, 3600, 4)
    assert tokens_within([reply], WINDOW, tokens_of) == 2
    assert tokens_within([reply._replace(arrivals_ns=None)], WINDOW, tokens_of) is None


def test_steps_of_the_model_are_counted_once_for_all_answers_in_generation():
    # Steps of 20 ms from 8 to 15 s, seen up to 8 ms late, and nothing until the last answer at 18 s.
    late = (0, 8, 3, 5)
    replies = [
        scripted(t_s * S + late_ms * MS, 20, 20, 51) for t_s in range(8, 15) for late_ms in late
    ]
    replies.append(scripted(18 * S, 20, 20, 201))
    # 10 to 15 s, and 2 of the last answer's 4 s.
    assert decode_steps(replies, WINDOW) == pytest.approx(5 * 50 + 99, abs=1.5)
    assert decode_steps([reply._replace(arrivals_ns=None) for reply in replies], WINDOW) == 0.0


def test_poisson_arrivals_do_not_depend_on_answers():
    one, other = (PoissonArrivals(50.0, 0, seed=3) for _ in range(2))
    taken = [one.take() for _ in range(2000)]
    assert taken == [other.take() for _ in range(2000)]
    gaps = [b - a for a, b in itertools.pairwise(taken)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.02 * S, rel=0.05)
    # Of an exponential distribution the standard deviation is the mean.
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)
    assert other.count(0, taken[-1]) == 1999


def test_lengths_have_their_distribution():
    for spec, low, high, mean in (
        ({"kind": "fixed", "value": 7}, 7, 7, 7),
        ({"kind": "uniform", "low": 10, "high": 30}, 10, 30, 20),
        ({"kind": "normal", "mean": 100, "sd": 10}, 1, 200, 100),
        ({"kind": "lognormal", "median": 100, "sigma": 0.5}, 1, 10_000, 113.3),
    ):
        rng = Random(5)
        drawn = [draw_length(spec, rng) for _ in range(4000)]
        assert low <= min(drawn) <= max(drawn) <= high, spec
        assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.05), spec


def prompts(**load):
    return Prompts(request("", load={**LOAD, **load}))


def test_prompts_have_the_wanted_tokens_by_the_servers_count():
    made = prompts(tokens_in={"kind": "fixed", "value": 100}, shared_prefix=0.5)
    # A server with 2 tokens for a word, and 11 for its template.
    count = lambda prompt: 11 + 2 * len(prompt.text.split())  # noqa: E731
    made.calibrate(count)
    texts = [made.next() for _ in range(3)]
    # The salt is a word, too.
    assert {count(text) for text in texts} <= {99, 100, 101}
    shared = [text.text.split()[:22] for text in texts]
    assert shared[0] == shared[1] == shared[2]
    assert len({text.text.split()[22] for text in texts}) == 3


def test_prompts_of_a_file_are_salted_and_bounded(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": "two", "output_tokens": 5}\n')
    made = prompts(prompts=str(path))
    texts = (made.next() for _ in range(40))
    found = {(text.text.partition("\n")[2], text.max_tokens) for text in texts}
    assert found == {("one", 4), ("two", 5)}
    for content, words in (
        ("", ": has 0 prompts; write 1 to 10000, one a line"),
        ("no json\n", ', prompt 1: write {"prompt": "text"}'),
        ('{"text": "x"}\n', ', prompt 1: write {"prompt": "text"}'),
        ('{"prompt": "x", "output_tokens": 0}\n', ", prompt 1: output_tokens is a number from 1"),
    ):
        path.write_text(content)
        with pytest.raises(ProbeConfigError) as raised:
            read_prompts(str(path), 4)
        assert str(raised.value).startswith(f"load.prompts {path}{words}"), content


@pytest.mark.parametrize(
    "more", [{}, {"loop": "open", "rate_per_s": 60.0, "concurrency": 32}], ids=["closed", "open"]
)
def test_a_server_is_measured_under_load(more):
    notes = Notes()
    load = {**LOAD, "tokens_out": {"kind": "fixed", "value": 4}, "slo_ms": {"ttft": 1e5}, **more}
    with InferenceServer(generating(pause_s=0.005)) as server:
        measure(notes, request(server.url, energy=True, load=load), min_window_s=0.1)
        bodies = [call.body for call in server.posts()]
    (result,) = notes.of("result")
    assert all(body["ignore_eos"] and body["max_tokens"] == 4 for body in bodies)
    assert len({json.dumps(body["messages"]) for body in bodies}) == len(bodies)
    assert result["errors"] == {}
    assert result["requests"] == result["samples"] > 0
    assert result["goodput_per_s"] > 0
    assert 0 < result["in_flight"] <= load["concurrency"]
    assert result["window_tokens_out"] > 0
    assert result["itl_ms"]["p50"] > 0
    assert result["decode_steps"] > 0
    assert (result["offered_per_s"] is None) == (load["loop"] == "closed")
    assert [line["type"] for line in notes.lines if "window_" in line["type"]] == [
        "window_start", "window_end",
    ]  # fmt: skip
    # The load is no part of the identity: points of a curve have the same.
    assert "concurrency" not in result["software"]


def test_a_server_without_tokens_has_a_load_curve_too():
    output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
    load = {**LOAD, "slo_ms": {"latency": 1e5}}
    notes = Notes()
    with InferenceServer(answering_tensors([output], pause_s=0.005)) as server:
        measure(notes, request(server.url, "kserve", load=load), min_window_s=0.1)
    (result,) = notes.of("result")
    assert (result["ttft_ms"], result["itl_ms"], result["window_tokens_out"]) == (None,) * 3
    assert result["inferences"] > 0
    assert result["goodput_per_s"] > 0
