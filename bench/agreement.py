"""Does our median latency agree with others'? All in one run, taking turns.

Warm against torch.utils.benchmark's blocked_autorange, and on a GPU cold against
triton.testing.do_bench, for five modules from 0.1 ms to 100 ms. Turns matter: a machine's clocks
and its neighbours change from second to second, and a peer that is measured only before or only
after would be compared with another machine.

Usage: python bench/agreement.py [--rounds N] [--devices cpu,cuda:0] [--json FILE]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils import benchmark

from probes.device import open_device
from probes.models import EncoderBlock, ResidualBlock
from probes.stats import StopRule, quantile
from probes.timing import sample, warm_up

WARM, COLD = (0.97, 1.03), (0.95, 1.05)
# Below this median the overheads of the timers themselves differ by more than the goal.
LEAST_MS = 1.0
TURN_S = 0.5
MAX_REPEATS = 20_000
# What is repeated until a pass takes about so long: the kinds of work that inference is made of.
MODULES = {
    "pointwise": (0.1, nn.GELU, (64, 1024)),
    "linear": (1.0, lambda: nn.Linear(1024, 1024), (64, 1024)),
    "convolution": (5.0, ResidualBlock, (4, 32, 64, 64)),
    "encoder": (20.0, EncoderBlock, (4, 128, 256)),
    "wide linear": (100.0, lambda: nn.Linear(4096, 4096), (64, 4096)),
}


def ours_ms(device, run, latency_ms, before=None):
    """Median latency in ms, as a probe measures it."""
    sampled = sample(
        device,
        run,
        latency_ms=latency_ms,
        rule=StopRule(300, TURN_S),
        min_runs=300,
        on_progress=lambda _: None,
        before=before,
    )
    return quantile(sorted(sampled.latencies_ms), 0.5)


def autorange_ms(run, threads):
    """Median latency in ms by blocked_autorange, at the same number of threads."""
    timer = benchmark.Timer("run()", globals={"run": run}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=TURN_S).median * 1000


def do_bench_ms(run):
    """Median latency in ms by triton's do_bench, which flushes the L2 cache before each pass."""
    from triton.testing import do_bench

    return do_bench(run, warmup=25, rep=TURN_S * 1000, return_mode="median")


def compared(ours, theirs, rounds):
    """The medians of both over all turns, and the median of the rounds' ratios.

    Ours, theirs, theirs, ours: a drift within a round weighs on both alike.
    """
    all_ours, all_theirs, ratios = [], [], []
    for _ in range(rounds):
        first = ours()
        their = [theirs(), theirs()]
        our = [first, ours()]
        ratios.append(sum(our) / sum(their))
        all_ours += our
        all_theirs += their
    return tuple(statistics.median(values) for values in (all_ours, all_theirs, ratios))


def built(name, device):
    """A forward pass of about its target on this device, and how long one takes in ms."""
    target_ms, block, shape = MODULES[name]
    torch.manual_seed(0)
    x = torch.randn(*shape).to(device.torch_device)
    single = nn.Sequential(block()).eval().to(device.torch_device)
    latency_ms = warm_up(device, lambda: single(x), lambda _: None)
    repeats = max(1, min(MAX_REPEATS, round(target_ms / latency_ms)))
    # The same block again and again, without its memory: weights of 100 ms would not fit.
    module = nn.Sequential(*([single[0]] * repeats))
    return (lambda: module(x)), warm_up(device, lambda: module(x), lambda _: None)


def rows_of(device_name, rounds):
    """One row for each comparison on a device."""
    device = open_device(device_name)
    on_gpu = device_name != "cpu"
    threads = torch.get_num_threads()
    with torch.inference_mode(), device.in_background():
        for name in MODULES:
            run, latency_ms = built(name, device)
            peers = [
                ("warm", "blocked_autorange", lambda run=run: autorange_ms(run, threads), None)
            ]
            if on_gpu:
                flush = device.cache_flush()
                peers.append(("cold", "do_bench", lambda run=run: do_bench_ms(run), flush))
            for mode, peer, theirs, before in peers:
                ours, their, ratio = compared(
                    lambda run=run, ms=latency_ms, b=before: ours_ms(device, run, ms, b),
                    theirs,
                    rounds,
                )
                least, most = COLD if mode == "cold" else WARM
                counts = ours >= LEAST_MS
                yield {
                    "device": device_name,
                    "module": name,
                    "mode": mode,
                    "peer": peer,
                    "ours_ms": ours,
                    "theirs_ms": their,
                    "ratio": ratio,
                    "goal": [least, most] if counts else None,
                    "good": least <= ratio <= most if counts else None,
                }


def shown(row):
    mark = {True: "", False: "  MISSED", None: "  (below 1 ms: no goal)"}[row["good"]]
    return (
        f"{row['device']:8} {row['module']:12} {row['mode']:5} {row['peer']:18}"
        f" {row['ours_ms']:9.3f} {row['theirs_ms']:9.3f} {row['ratio']:7.3f}{mark}"
    )


def main():
    parser = argparse.ArgumentParser(description="Our medians against others'.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--devices", default="cpu,cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {asked.rounds} rounds")
    print(
        f"{'device':8} {'module':12} {'mode':5} {'peer':18} {'ours ms':>9} {'theirs ms':>9}"
        f" {'ratio':>7}"
    )
    rows = []
    for device_name in asked.devices.split(","):
        for row in rows_of(device_name, asked.rounds):
            rows.append(row)
            print(shown(row), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))
    return int(any(row["good"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
