"""Append batches and advance a cursor until killed; report each step after its commit."""

import sys
from pathlib import Path

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from fakes.store_access import advance, cursor, rows_after
from store_samples import point

BATCH_POINTS = 20
SENT_POINTS = 7


def report(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # read by the test
    sys.stdout.flush()


store = Store.open(Path(sys.argv[1]), SystemClock())
store.register_sink("s")
number = int(sys.argv[2])
report("ready", number)
while True:
    batch = range(number, number + BATCH_POINTS)
    store.append([point(each, f"gpu{each % 5}", n=each) for each in batch])
    number += BATCH_POINTS
    report("appended", number)
    rows = rows_after(store, cursor(store, "s"), SENT_POINTS)
    refused = [RejectedLine(row.line, "no") for row in rows[:1]]
    advance(store, "s", rows[-1].seq, len(rows) - 1, refused)
    report("acked", rows[-1].seq)
    store.put_state("progress", {"number": number})
    report("state", number)
