"""Append rows and aggregate older ones until killed; report each step after its commit."""

import sys
from pathlib import Path

from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from store_samples import T0_NS, S, point

BATCH_POINTS = 20
EVERY_S = 60


def report(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # read by the test
    sys.stdout.flush()


store = Store.open(Path(sys.argv[1]), SystemClock())
number = int(sys.argv[2])
report("appended", number)
while True:
    batch = range(number, number + BATCH_POINTS)
    store.append([point(n * EVERY_S, f"gpu{n % 2}", energy_j=1.0, power_w=float(n)) for n in batch])
    number += BATCH_POINTS
    report("appended", number)
    now_ns = T0_NS + number * EVERY_S * S
    store.settle(now_ns, 2)
    keep = KeepSince(now_ns - 10_800 * S, now_ns - 10_800 * S, -(2**63), -(2**63))
    for _ in range(3):
        step = store.retain(keep, 16)
        report("aggregated", step.aggregated)
    store.release_pages(keep=False)
