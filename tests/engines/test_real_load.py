"""Points of a load curve beside `vllm bench serve`, on a real vLLM on the CPU. `make soak` runs it.

The server has one processor core and the clients, of which one runs at a time, have the other. Runs of both
alternate, so that the drift of the machine is that of both. Figures are compared over the same definition:
requests that began within a window under constant load. Those that `vllm bench serve` itself prints include
the rise and the fall of the load; they are recorded, too.
"""

import json
import os
import random
import statistics

import pytest
from costprobe.adapters.probing.request import served_request
from costprobe.adapters.probing.served_settings import OpenAiProbeConfig
from costprobe.domain.costing.load.point import LoadStep
from costprobe_probes.served import load_point
from costprobe_probes.served.arrivals import NS_PER_S, PoissonArrivals
from costprobe_probes.served.load import Outcomes
from costprobe_probes.served.load_figures import cohort, load_figures, tokens_within
from costprobe_probes.served.session import ServedSession
from costprobe_probes.served.window import work_within
from costprobe_probes.window import ProbeWindow
from engines.bench_serve import bench_serve, replies_of
from engines.environment import running
from engines.run_vllm import Vllm
from fakes.inference_server import Notes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
SERVER_CORE, CLIENT_CORE = 0, 1
# Hidden size and layers: a step takes more than 15 ms, much longer than the work of either client.
SIZE = (768, 8)
TOKENS_IN, TOKENS_OUT, CONCURRENCY, RATE_PER_S = 64, 32, 4, 2.0
WINDOW_S, WARMUP_S = 13.0, 2.0
# The longest phase of a window, its rise and what reads take behind it.
EDGES_S = 2.0
PAIRS = int(os.environ.get("COSTPROBE_LOAD_PAIRS", "6"))
BOUND = 0.02
RESAMPLES = 4000
# Their names in the result of `vllm bench serve`; the throughputs are printed over the whole run.
PRINTED = {
    "requests/s": "request_throughput",
    "output tokens/s": "output_throughput",
    "TTFT mean": "mean_ttft_ms",
    "TTFT p50": "median_ttft_ms",
    "TPOT mean": "mean_tpot_ms",
    "TPOT p50": "median_tpot_ms",
    "ITL mean": "mean_itl_ms",
    "ITL p50": "median_itl_ms",
}


class PinnedVllm(Vllm):
    """All its processes on one core, and no request is answered by an earlier one."""

    def command(self):
        return ["taskset", "-c", SERVER_CORE, *super().command(), "--no-enable-prefix-caching"]


class ReplayedArrivals(PoissonArrivals):
    """The schedule of a run of `vllm bench serve`, and then nothing for an hour."""

    def __init__(self, offsets_ns, start_ns):
        self.start_ns = start_ns
        self._left = iter([*offsets_ns, *(n * 3600 * NS_PER_S for n in range(1, 99))])
        super().__init__(1.0, start_ns, 0)

    def _advance(self):
        self._next_ns = self.start_ns + next(self._left)


def figures_in(replies, window):
    """The compared figures of requests in a window."""

    def tokens_out(reply):
        return reply.tokens_out

    found = load_figures(cohort(Outcomes(replies, []), window, None), window, {}, tokens_out)
    window_s = (window.end_ns - window.start_ns) / 1e9
    times = {"TTFT": found["ttft_ms"], "TPOT": found["tpot_ms"], "ITL": found["itl_ms"]}
    return {
        "requests/s": work_within(replies, window.start_ns, window.end_ns, tokens_out).requests
        / window_s,
        "output tokens/s": tokens_within(replies, window, tokens_out) / window_s,
        **{f"{name} {which}": x[which] for name, x in times.items() for which in ("mean", "p50")},
    }


def ours(engine, prompts, step):
    """The figures of a point, and its result."""
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "real", "kind": "openai", "api": "completions", "url": engine.url,
            "model": engine.model(), "vary_prompt": False,
            "load": {
                "prompts": str(prompts), "tokens_out": TOKENS_OUT, "warmup": f"{WARMUP_S}s",
                "window": f"{WINDOW_S}s", "window_max": f"{WINDOW_S}s",
            },
        }
    )  # fmt: skip
    notes = Notes()
    ServedSession(notes).run(json.loads(served_request(probe, energy=False, load=step).to_wire()))
    (result,) = notes.of("served_result")
    assert result["errors"] == {}
    assert result["tokens_out"] == TOKENS_OUT
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    times = {"TTFT": result["ttft_ms"], "TPOT": result["tpot_ms"], "ITL": result["load"]["itl_ms"]}
    return result, {
        "requests/s": result["window_requests"] / window_s,
        "output tokens/s": result["window_tokens_out"] / window_s,
        **{f"{name} {which}": x[which] for name, x in times.items() for which in ("mean", "p50")},
    }


def closed_pair(engine, prompts, run, *, ours_first):
    """One run of each in a closed loop: our figures, theirs in a window as ours, and as printed."""

    def own():
        return ours(engine, prompts, LoadStep("closed", 1, concurrency=CONCURRENCY))[1]

    first = own() if ours_first else None
    result = run(*options(prompts), "--max-concurrency", CONCURRENCY, "--num-warmups", CONCURRENCY)
    replies = replies_of(result)
    # All connections are in use from the second request of each to the last start.
    window = ProbeWindow(0, replies[CONCURRENCY].start_ns, replies[-1].start_ns, 0)
    return first or own(), figures_in(replies, window), printed(result)


def open_pair(engine, prompts, run, monkeypatch, *, ours_first, schedule):
    """One run of each by the same schedule, and the same requests of both."""
    arrivals = []

    def replayed(_rate_per_s, start_ns, _seed):
        arrivals.append(ReplayedArrivals(schedule, start_ns))
        return arrivals[-1]

    def own():
        monkeypatch.setattr(load_point, "PoissonArrivals", replayed)
        return ours(engine, prompts, LoadStep("open", 1, rate_per_s=RATE_PER_S))

    found = own() if ours_first else None
    result = run(*options(prompts), "--request-rate", RATE_PER_S, "--num-warmups", CONCURRENCY)
    point, mine = found or own()
    replies = replies_of(result)
    shift_ns = replies[0].start_ns - arrivals[0].start_ns - schedule[0]
    window = ProbeWindow(
        0, point["window_start_ns"] + shift_ns, point["window_end_ns"] + shift_ns, 0
    )
    return mine, figures_in(replies, window), printed(result)


def options(prompts):
    """What all runs of `vllm bench serve` have in common."""
    return (
        "--dataset-name", "custom", "--dataset-path", prompts, "--custom-output-len", TOKENS_OUT,
        "--seed", 1,
        "--num-prompts", len(prompts.read_text().splitlines()),
    )  # fmt: skip


def printed(result):
    """The figures that it prints."""
    assert result["completed"] == result["num_prompts"]
    return {name: result[key] for name, key in PRINTED.items()}


def write_prompts(path, count):
    """Write prompts of one length for both clients: a token is a byte."""
    rng = random.Random(1)
    lines = (
        {"prompt": "".join(rng.choices("abcdefgh ", k=TOKENS_IN)), "output_tokens": TOKENS_OUT}
        for _ in range(count)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compared(pairs, name, other):
    """The ratio of the medians of a figure, ours over theirs, with an interval of 95 % (bootstrap of the pairs)."""
    rng = random.Random(1)

    def ratio(some):
        mine = statistics.median(pair[0][name] for pair in some)
        return mine / statistics.median(pair[other][name] for pair in some)

    resampled = sorted(ratio(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    ends = round(0.025 * RESAMPLES), round(0.975 * RESAMPLES) - 1
    return [ratio(pairs), *(resampled[end] for end in ends)]


def recorded(keep, case, pairs):
    """Record the comparison; return the ratios over the same definition."""
    found = {
        name: {
            "ours": statistics.median(pair[0][name] for pair in pairs),
            "theirs": statistics.median(pair[1][name] for pair in pairs),
            "same_definition": compared(pairs, name, 1),
            "as_printed": compared(pairs, name, 2),
        }
        for name in PRINTED
    }
    keep(f"vLLM: {case}", runs=len(pairs), figures=found)
    return {name: each["same_definition"] for name, each in found.items()}


def check(ratios):
    """Fail if a figure differs by more than the bound; skip if noise does not allow to tell."""
    beyond = {
        name: interval
        for name, interval in ratios.items()
        if interval[2] < 1 - BOUND or interval[1] > 1 + BOUND
    }
    assert not beyond
    unknown = {
        name: interval
        for name, interval in ratios.items()
        if interval[1] < 1 - BOUND or interval[2] > 1 + BOUND
    }
    if unknown:
        pytest.skip(f"agreement within {BOUND:.0%} is not shown: {unknown}")


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """The engine, and `vllm bench serve`; this process is on the core of the clients."""
    if (os.cpu_count() or 1) <= max(SERVER_CORE, CLIENT_CORE):
        pytest.skip("needs two processor cores")
    engine = PinnedVllm(tmp_path_factory.mktemp("vllm"), SIZE)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CLIENT_CORE})
    try:
        with running(engine, engine.folder), bench_serve(engine, CLIENT_CORE) as run:
            engine.warm_up()
            yield engine, run
    finally:
        os.sched_setaffinity(0, before)


def orders():
    """Whether ours is first in each pair: ABBA."""
    return [pair % 2 == 0 for pair in range(PAIRS)]


def test_closed_loop_agrees_with_vllm_bench_serve(clients, figures):
    engine, run = clients
    prompts = write_prompts(engine.folder / "closed.jsonl", 64)
    pairs = [closed_pair(engine, prompts, run, ours_first=first) for first in orders()]
    check(recorded(figures, f"closed loop, {CONCURRENCY} in flight", pairs))


def test_open_loop_agrees_with_vllm_bench_serve(clients, figures, monkeypatch):
    engine, run = clients
    count = round(RATE_PER_S * (WARMUP_S + WINDOW_S + EDGES_S))
    prompts = write_prompts(engine.folder / "open.jsonl", count)
    replies = replies_of(run(*options(prompts), "--request-rate", RATE_PER_S))
    schedule = [reply.start_ns - replies[0].start_ns + NS_PER_S // 10 for reply in replies]
    pairs = [
        open_pair(engine, prompts, run, monkeypatch, ours_first=first, schedule=schedule)
        for first in orders()
    ]
    check(recorded(figures, f"open loop, {RATE_PER_S:g} requests/s", pairs))
