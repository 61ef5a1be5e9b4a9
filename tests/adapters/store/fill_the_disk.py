"""Append beyond the capacity of the disk, then free space, and print the outcome as JSON.

Arguments: a folder, and the limit: "disk" for a small file system with a ballast file, which is
deleted, or "limit" for RLIMIT_FSIZE, which is then lifted.
"""

import json
import resource
import sys
from pathlib import Path

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from store_samples import lines_of, point

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

store = Store.open(folder / "costprobe.db", FakeClock())
buffer = StoreLedger(store, CAPACITY_POINTS)
given, faults = 0, set()
while buffer.dropped_points == 0 and given < 100_000:
    buffer.append([point(second, title="x" * 300) for second in range(given, given + BATCH_POINTS)])
    given += BATCH_POINTS
    if buffer.fault:
        faults.add(buffer.fault)
kept = len(lines_of(store))
try:
    store.put_state("a", "x" * 100_000)
    error = None
except StoreError as caught:
    error = caught.fault
waiting = buffer.waiting_points
if kind == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
else:
    ballast.unlink()
flushed = buffer.flush()
print(  # noqa: T201 - read by the test
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
