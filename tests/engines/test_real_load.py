"""Points of a load curve beside `vllm bench serve`, on a real vLLM on the CPU. `make soak` runs it.

The server has one processor core and the clients have the other. Both clients run at the same time, each with half
of the load, so that both measure the same server in the same seconds. In the closed loop both send the same
requests in the same order, others in each run. In the open loop each has a schedule, and a run is two, the second
with the schedules exchanged. Figures are compared over the same definition: requests that began within a window
under constant load. Those that `vllm bench serve` itself prints include the rise and the fall of the load; they are
recorded, too.
"""

import json
import math
import os
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from costprobe.adapters.load_child import main
from costprobe.adapters.load_child.load import NS_PER_S, Outcomes, PoissonArrivals, work_within
from costprobe.adapters.load_child.main import cohort, load_figures, measure, tokens_within
from costprobe.adapters.load_child.prompts import Prompts
from costprobe.core.statistics import student_quantile
from costprobe.probing.load_curve import LoadStep
from costprobe.probing.run import served_request
from costprobe.probing.settings import OpenAiProbeConfig
from costprobe_probes.stats import ProbeWindow
from engines.bench_serve import bench_serve, replies_of
from engines.environment import running
from engines.run_vllm import Vllm
from fakes.inference_server import Notes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
SERVER_CORE, CLIENT_CORE = 0, 1
# Hidden size and layers: a step takes more than 15 ms, much longer than the work of either client.
SIZE = (768, 8)
# With long prompts the TTFT would be how many of the others' prompts come before, which is chance.
TOKENS_IN, CONCURRENCY, RATE_PER_S = 32, 4, 1.0
# Lengths of answers: with one length all requests of a closed loop would end in the same steps.
LOW, HIGH = 24, 40
WINDOW_S = 60.0
WARMUP_S = {"closed": 5.0, "open": 10.0}
# The schedules of an open loop begin this long after the start of a run, in which both clients get ready.
LEAD_S = 6.0
# The longest phase of a window, its rise and what reads take behind it.
EDGES_S = 3.0
# Requests of a client in a closed loop: more than fit into warm-up and window.
CLOSED_REQUESTS = 200
LATE_S = 0.05
PAIRS = int(os.environ.get("COSTPROBE_LOAD_PAIRS", "12"))
BOUND = 0.02
FIRST = LoadStep("closed", 1, concurrency=1)
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


class GivenArrivals(PoissonArrivals):
    """Given instants in CLOCK_MONOTONIC ns, and then nothing for an hour."""

    def __init__(self, instants_ns):
        never_ns = instants_ns[-1] + 3600 * NS_PER_S
        self._left = iter([*instants_ns, *(never_ns + n * NS_PER_S for n in range(99))])
        super().__init__(RATE_PER_S, 0, 0)

    def _advance(self):
        self._next_ns = next(self._left)


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


def wire_of(engine, step):
    """The request of a point to the probe process."""
    loop = step.loop
    prompts = write_prompts(engine.folder / "prompts.jsonl")
    probe = OpenAiProbeConfig.model_validate(
        {
            "name": "real", "kind": "openai", "api": "completions", "url": engine.url,
            "model": engine.model(), "vary_prompt": False,
            "load": {
                "prompts": str(prompts), "tokens_out": f"uniform({LOW}, {HIGH})",
                "warmup": f"{WARMUP_S[loop]}s", "window": f"{WINDOW_S}s",
            },
        }
    )  # fmt: skip
    return json.loads(served_request(probe, energy=False, load=step).to_wire())


def ours(wire):
    """The result of a point, and its figures."""
    notes = Notes()
    measure(notes, wire)
    (result,) = notes.of("result")
    assert result["errors"] == {}
    window_s = (result["window_end_ns"] - result["window_start_ns"]) / 1e9
    times = {"TTFT": result["ttft_ms"], "TPOT": result["tpot_ms"], "ITL": result["itl_ms"]}
    return result, {
        "requests/s": result["inferences"] / window_s,
        "output tokens/s": result["window_tokens_out"] / window_s,
        **{f"{name} {which}": x[which] for name, x in times.items() for which in ("mean", "p50")},
    }


def both(engine, run, wire, load, count, *, instants_ns=()):
    """Both clients at the same time: our figures, theirs in the same window, and as printed."""
    same = write_same(engine.folder / "same.jsonl", wire, count)
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(run, *options(same), *load, instants_ns=instants_ns)
        point, mine = ours(wire)
        result = theirs.result()
    replies = replies_of(result)
    window = ProbeWindow(0, point["window_start_ns"], point["window_end_ns"], 0)
    # The load lasted the whole window.
    assert replies[0].start_ns < window.start_ns
    assert replies[-1].start_ns > window.end_ns
    late_s = [(x.start_ns - t_ns) / 1e9 for x, t_ns in zip(replies, instants_ns, strict=False)]
    assert max(late_s, default=0.0) < LATE_S
    return mine, figures_in(replies, window), printed(result)


def closed_pair(engine, run, number):
    """One run of both, with the requests of a number."""
    half = CONCURRENCY // 2
    wire = wire_of(engine, LoadStep("closed", number, concurrency=half))
    load = "--max-concurrency", half, "--num-warmups", half
    return both(engine, run, wire, load, CLOSED_REQUESTS)


def open_pair(engine, run, monkeypatch, seed):
    """Two runs of both, the second with the schedules exchanged: the means of each figure."""
    wire = wire_of(engine, LoadStep("open", 1, rate_per_s=RATE_PER_S))
    length_s = WARMUP_S["open"] + WINDOW_S + EDGES_S
    schedules = [poisson(random.Random(seed + n), length_s) for n in range(2)]
    runs = []
    for mine, theirs in (schedules, schedules[::-1]):
        start_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
        arrivals = GivenArrivals([start_ns + offset_ns for offset_ns in mine])
        monkeypatch.setattr(main, "PoissonArrivals", lambda *_, given=arrivals: given)
        instants_ns = [start_ns + offset_ns for offset_ns in theirs]
        runs.append(both(engine, run, wire, (), len(theirs), instants_ns=instants_ns))
    return [
        {name: statistics.fmean(x[name] for x in halves) for name in halves[0]}
        for halves in zip(*runs, strict=True)
    ]


def poisson(rng, length_s):
    """Instants of a Poisson process in ns, from 0 on."""
    found_s = [0.0]
    while found_s[-1] < length_s:
        found_s.append(found_s[-1] + rng.expovariate(RATE_PER_S))
    return [round(t_s * 1e9) for t_s in found_s]


def options(prompts):
    """What all runs of `vllm bench serve` have in common."""
    return (
        "--dataset-name", "custom", "--dataset-path", prompts, "--seed", 1,
        "--num-prompts", len(prompts.read_text().splitlines()),
    )  # fmt: skip


def printed(result):
    """The figures that it prints."""
    assert result["completed"] == result["num_prompts"]
    return {name: result[key] for name, key in PRINTED.items()}


def write_prompts(path):
    """Write prompts of one length: a token is a byte."""
    rng = random.Random(1)
    texts = ("".join(rng.choices("abcdefgh ", k=TOKENS_IN)) for _ in range(64))
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


def write_same(path, wire, count):
    """Write the first requests of ours, in their order, for `vllm bench serve`."""
    prompts = Prompts(wire)
    lines = [prompts.next() for _ in range(count)]
    path.write_text(
        "".join(
            json.dumps({"prompt": line.text, "output_tokens": line.max_tokens}) + "\n"
            for line in lines
        )
    )
    return path


def compared(pairs, name, other):
    """The mean ratio of a figure, ours over theirs, with an interval of 95 % (Student's t, of the logarithms)."""
    logs = [math.log(pair[0][name] / pair[other][name]) for pair in pairs]
    mean = statistics.fmean(logs)
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(mean), math.exp(mean - half), math.exp(mean + half)]


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
            # Its first run begins with the import of vLLM.
            first = wire_of(engine, FIRST)
            run(*options(write_same(engine.folder / "first.jsonl", first, CONCURRENCY)))
            yield engine, run
    finally:
        os.sched_setaffinity(0, before)


def test_closed_loop_agrees_with_vllm_bench_serve(clients, figures):
    engine, run = clients
    pairs = [closed_pair(engine, run, 1 + n) for n in range(PAIRS)]
    check(recorded(figures, f"closed loop, {CONCURRENCY} in flight", pairs))


def test_open_loop_agrees_with_vllm_bench_serve(clients, figures, monkeypatch):
    engine, run = clients
    pairs = [open_pair(engine, run, monkeypatch, 2 * n) for n in range(PAIRS)]
    check(recorded(figures, f"open loop, {2 * RATE_PER_S:g} requests/s", pairs))
