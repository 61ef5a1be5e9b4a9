"""Appends batches and moves a cursor until it is killed, telling each thing once it is committed."""

import sys
from pathlib import Path

from store_samples import point

from agent.clock import SystemClock
from agent.storage.outbox import RejectedLine
from agent.storage.writer import Store

BATCH_POINTS = 20
SENT_POINTS = 7


def tell(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # the one who kills this listens
    sys.stdout.flush()


store = Store.open(Path(sys.argv[1]), SystemClock())
store.register_sink("s")
number = int(sys.argv[2])
tell("ready", number)
while True:
    batch = range(number, number + BATCH_POINTS)
    store.append([point(each, f"gpu{each % 5}", n=each) for each in batch])
    number += BATCH_POINTS
    tell("appended", number)
    rows = store.rows_after(store.cursor("s"), SENT_POINTS)
    refused = [RejectedLine(row.line, "no") for row in rows[:1]]
    store.advance("s", rows[-1].seq, len(rows) - 1, refused)
    tell("acked", rows[-1].seq)
    store.put_state("progress", {"number": number})
    tell("state", number)
