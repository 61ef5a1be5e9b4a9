"""Does our median latency agree with torch.utils.benchmark's? Both in one run, taking turns.

Turns matter: a machine's clocks and its neighbours change from second to second, and a peer that
is measured only before or only after would be compared with another machine.

Usage: python bench/agreement.py [ROUNDS]
"""

import statistics
import sys

import torch
from torch.utils import benchmark

from probes.device import open_device
from probes.models import KINDS
from probes.stats import StopRule, quantile
from probes.timing import sample, warm_up
from probes.workload import load

LOWEST, HIGHEST = 0.97, 1.03
BATCH = 2
TURN_S = 0.5


def ours_ms(device, run, latency_ms):
    """Median latency in ms, as a probe measures it."""
    sampled = sample(
        device,
        run,
        latency_ms=latency_ms,
        rule=StopRule(300, TURN_S),
        min_runs=300,
        on_progress=lambda _: None,
    )
    return quantile(sorted(sampled.latencies_ms), 0.5)


def theirs_ms(run, threads):
    """Median latency in ms by blocked_autorange, at the same number of threads."""
    timer = benchmark.Timer("run()", globals={"run": run}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=TURN_S).median * 1000


def compare(device, kind, threads, rounds):
    """The medians of both over all turns, and the median of the rounds' ratios."""
    workload = load(kind, None, "fp32", 0)
    workload.module.to(device.torch_device)
    run = workload.forward_pass(workload.inputs(BATCH).each(lambda x: x.to(device.torch_device)))
    latency_ms = warm_up(device, run, lambda _: None)
    theirs_ms(run, threads)
    ours, theirs, ratios = [], [], []
    for _ in range(rounds):
        # Ours, theirs, theirs, ours: a drift within the round weighs on both alike.
        first_ms = ours_ms(device, run, latency_ms)
        their_ms = [theirs_ms(run, threads), theirs_ms(run, threads)]
        our_ms = [first_ms, ours_ms(device, run, latency_ms)]
        ratios.append(sum(our_ms) / sum(their_ms))
        ours += our_ms
        theirs += their_ms
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    devices = ["cpu"] + (["cuda:0"] if torch.cuda.is_available() else [])
    missed = False
    print(f"torch {torch.__version__}, batch {BATCH}, {rounds} rounds, ours against")
    print(
        "torch.utils.benchmark blocked_autorange (medians; the ratio is the median of the rounds')"
    )
    print(f"{'device':8} {'threads':>7} {'module':12} {'ours ms':>9} {'theirs ms':>9} {'ratio':>7}")
    with torch.inference_mode():
        for name in devices:
            device = open_device(name)
            counts = sorted({1, torch.get_num_threads()}) if name == "cpu" else [1]
            for threads in counts:
                if name == "cpu":
                    torch.set_num_threads(threads)
                for kind in KINDS:
                    our_ms, their_ms, ratio = compare(device, kind, threads, rounds)
                    good = LOWEST <= ratio <= HIGHEST
                    missed = missed or not good
                    mark = "" if good else "  MISSED"
                    print(
                        f"{name:8} {threads:7} {kind:12} {our_ms:9.3f} {their_ms:9.3f}"
                        f" {ratio:7.3f}{mark}",
                        flush=True,
                    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
