"""Appends until the disk is full, and on; then makes room, and says what the store holds.

Called with a folder and what ends the room: "disk", for a small file system that a ballast file
is deleted from, or "limit", for the system's limit on the size of a file, which is then lifted.
"""

import json
import resource
import sys
from pathlib import Path

from fakes.clock import FakeClock
from store_samples import lines_of, point

from agent.storage.buffer import BufferedWriter
from agent.storage.errors import StoreError
from agent.storage.writer import Store

CAPACITY_POINTS = 300
BATCH_POINTS = 20
LIMIT_BYTES = 400_000

folder, kind = Path(sys.argv[1]), sys.argv[2]
_, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
ballast = folder / "ballast"
if kind == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard_limit))
else:
    ballast.write_bytes(bytes(2_000_000))

store = Store.open(folder / "infercost.db", FakeClock())
buffer = BufferedWriter(store, CAPACITY_POINTS)
given, faults = 0, set()
while buffer.dropped_points == 0 and given < 100_000:
    buffer.append([point(second, title="x" * 300) for second in range(given, given + BATCH_POINTS)])
    given += BATCH_POINTS
    if buffer.fault:
        faults.add(buffer.fault)
kept = len(lines_of(store))
try:
    store.put_state("a", "x" * 10_000)
    error = None
except StoreError as caught:
    error = {"fault": caught.fault, "passing": caught.passing}
waiting = buffer.waiting_points
if kind == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
else:
    ballast.unlink()
flushed = buffer.flush()
print(  # noqa: T201 - the answer
    json.dumps(
        {
            "given": given,
            "kept": kept,
            "waiting": waiting,
            "dropped": buffer.dropped_points,
            "dropped_recorded": store.dropped_points(),
            "faults": sorted(faults),
            "error": error,
            "flushed": flushed,
            "fault_after": buffer.fault,
            "stored": len(lines_of(store)),
        }
    )
)
store.close()
