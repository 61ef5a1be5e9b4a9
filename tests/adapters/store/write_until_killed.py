"""Append batches, advance a cursor and aggregate until killed; report each step after its commit.

Arguments: the store and the number of its rows.
"""

import sys
from pathlib import Path

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from fakes.store_access import advance, cursor, rows_after
from store_samples import T0_NS, S, point

BATCH_POINTS = 20
SENT_POINTS = 27
EVERY_S = 60


def report(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # read by the test
    sys.stdout.flush()


store = Store.open(Path(sys.argv[1]), SystemClock())
store.register_sink("s")
number = int(sys.argv[2])
report("ready", number)
while True:
    batch = range(number, number + BATCH_POINTS)
    store.append([point(n * EVERY_S, f"gpu{n % 5}", n=float(n), energy_j=1.0) for n in batch])
    number += BATCH_POINTS
    report("appended", number)
    rows = rows_after(store, cursor(store, "s"), SENT_POINTS)
    refused = [RejectedLine(row.line, "no") for row in rows[:1]]
    advance(store, "s", rows[-1].seq, len(rows) - 1, refused)
    report("acked", rows[-1].seq)
    store.put_state("progress", {"number": number})
    report("state", number)
    now_ns = T0_NS + number * EVERY_S * S
    store.settle(now_ns, 2)
    keep = KeepSince(now_ns - 10_800 * S, now_ns - 10_800 * S, -(2**63), -(2**63))
    for _ in range(3):
        report("aggregated", store.retain(keep, 16).aggregated)
    store.release_pages(keep=False)
