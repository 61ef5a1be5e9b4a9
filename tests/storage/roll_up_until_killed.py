"""Appends rows and rolls up what is older until it is killed, telling each thing once it is done."""

import sys
from pathlib import Path

from store_samples import T0_NS, S, point

from agent.clock import SystemClock
from agent.storage.rollup import KeepSince
from agent.storage.writer import Store

BATCH_POINTS = 20
EVERY_S = 5


def tell(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # the one who kills this listens
    sys.stdout.flush()


store = Store.open(Path(sys.argv[1]), SystemClock())
number = int(sys.argv[2])
tell("appended", number)
while True:
    batch = range(number, number + BATCH_POINTS)
    store.append([point(n * EVERY_S, f"gpu{n % 2}", energy_j=1.0, power_w=float(n)) for n in batch])
    number += BATCH_POINTS
    tell("appended", number)
    now_ns = T0_NS + number * EVERY_S * S
    keep = KeepSince(now_ns - 300 * S, now_ns - 900 * S, -(2**63), -(2**63))
    for _ in range(3):
        step = store.retain(keep, 16)
        tell("folded", step.folded)
    store.give_back(keep=False)
