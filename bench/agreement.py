"""Agreement of our median latency with other timers, measured alternately in one run.

Warm against torch.utils.benchmark's blocked_autorange, and on a GPU cold against
triton.testing.do_bench, for five modules from 0.1 ms to 100 ms. The order
matters: clocks and other load change from second to second, so that a peer measured only before
or only after ours would have different conditions.

Usage: python bench/agreement.py [--rounds N] [--devices cpu,cuda:0] [--json FILE]
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from costprobe_probes.device import TorchDevice, open_device
from costprobe_probes.sources.builtin import EncoderBlock, ResidualBlock
from costprobe_probes.stats import StopRule, quantile
from costprobe_probes.timing import sample, warm_up
from table import Table, add_json, finish
from torch import nn
from torch.utils import benchmark

WARM, COLD = (0.97, 1.03), (0.95, 1.05)
# Below this median the overheads of the timers themselves differ by more than the goal.
LEAST_MS = 1.0
SAMPLE_S = 0.5
MAX_REPEATS = 20_000
# Typical inference layers, repeated until a pass takes about the given time in ms.
MODULES: dict[str, tuple[float, Callable[[], nn.Module], tuple[int, ...]]] = {
    "pointwise": (0.1, nn.GELU, (64, 1024)),
    "linear": (1.0, lambda: nn.Linear(1024, 1024), (64, 1024)),
    "convolution": (5.0, ResidualBlock, (4, 32, 64, 64)),
    "encoder": (20.0, EncoderBlock, (4, 128, 256)),
    "wide linear": (100.0, lambda: nn.Linear(4096, 4096), (64, 4096)),
}


def ours_ms(
    device: TorchDevice,
    run: Callable[[], object],
    latency_ms: float,
    before: Callable[[], object] | None = None,
) -> float:
    """Return the median latency in ms as measured by a probe."""
    sampled = sample(
        device,
        run,
        latency_ms=latency_ms,
        rule=StopRule(300, SAMPLE_S),
        min_runs=300,
        on_progress=lambda _: None,
        before=before,
    )
    return quantile(sorted(sampled.latencies_ms), 0.5)


def autorange_ms(run: Callable[[], object], threads: int) -> float:
    """Return the median latency in ms by blocked_autorange, with the same number of threads."""
    timer = benchmark.Timer("run()", globals={"run": run}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=SAMPLE_S).median * 1000


def do_bench_ms(run: Callable[[], object]) -> float:
    """Return the median latency in ms by triton's do_bench, which flushes the L2 cache before each pass."""
    from triton.testing import do_bench

    return float(do_bench(run, warmup=25, rep=SAMPLE_S * 1000, return_mode="median"))


def compared(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> tuple[float, float, float]:
    """Return the medians of both over all rounds, and the median of the rounds' ratios.

    The order ours, theirs, theirs, ours cancels a linear drift within a round.
    """
    all_ours: list[float] = []
    all_theirs: list[float] = []
    ratios = []
    for _ in range(rounds):
        first = ours()
        their = [theirs(), theirs()]
        our = [first, ours()]
        ratios.append(sum(our) / sum(their))
        all_ours += our
        all_theirs += their
    return statistics.median(all_ours), statistics.median(all_theirs), statistics.median(ratios)


def built(name: str, device: TorchDevice) -> tuple[Callable[[], object], float]:
    """Return a forward pass of about its target latency on this device, and its latency in ms."""
    target_ms, block, shape = MODULES[name]
    torch.manual_seed(0)
    x = torch.randn(*shape).to(device.torch_device)
    single = nn.Sequential(block()).eval().to(device.torch_device)
    latency_ms = warm_up(device, lambda: single(x), lambda _: None)
    repeats = max(1, min(MAX_REPEATS, round(target_ms / latency_ms)))
    # The same block is repeated, because distinct weights for 100 ms would not fit into memory.
    module = nn.Sequential(*([single[0]] * repeats))
    return (lambda: module(x)), warm_up(device, lambda: module(x), lambda _: None)


def add_rows(table: Table, device_name: str, rounds: int) -> None:
    """Add one row for each comparison on a device."""
    device = open_device(device_name)
    threads = torch.get_num_threads()
    with torch.inference_mode(), device.in_background():
        for name in MODULES:
            run, latency_ms = built(name, device)
            peers: list[tuple[str, str, Any, Any, tuple[float, float]]] = [
                ("warm", "blocked_autorange", partial(autorange_ms, run, threads), None, WARM)
            ]
            if device_name != "cpu":
                flush = device.cache_flush()
                peers.append(("cold", "do_bench", partial(do_bench_ms, run), flush, COLD))
            for mode, peer_name, theirs, before, (least, most) in peers:
                ours, their, ratio = compared(
                    partial(ours_ms, device, run, latency_ms, before), theirs, rounds
                )
                is_judged = ours >= LEAST_MS
                table.row(
                    f"{device_name}, {name}, {mode}",
                    ours,
                    "ms",
                    peer=their,
                    peer_name=peer_name,
                    goal=f"ratio {least:g} to {most:g}" if is_judged else "",
                    met=least <= ratio <= most if is_judged else None,
                    note=f"median ratio of the rounds {ratio:.3f}",
                )


def main() -> int:
    parser = argparse.ArgumentParser(description="Agreement of median latencies with other timers.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--devices", default="cpu,cuda:0" if torch.cuda.is_available() else "cpu")
    add_json(parser)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.rounds} rounds")
    table = Table()
    for device_name in options.devices.split(","):
        add_rows(table, device_name, options.rounds)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
