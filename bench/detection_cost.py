"""What a detector costs: updates a second of one series, and the memory of a thousand of them.

Memory is measured where nothing else is: a process of its own makes detectors of many series, all
fed with the same days, and tells by how much its resident memory grew, or what Python allocated if
that is more: small ones fit into memory that the process had before.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from streams import PER_DAY, Recipe, Stream, make

Update = Callable[[float, float], list[str]]
PAGE_BYTES = 4096
FED_DAYS = 4
ROUNDS = 3
SERIES = 200
SERIES_TRACED = 10


def fed(count: int) -> Stream:
    """About so many values with a daily pattern."""
    return make(Recipe(count / PER_DAY, 0.01, 0.3, daily=0.05), random.Random(1))


def speed_of(build: Callable[[], Update], count: int) -> float:
    """Updates a second of processor time: the best of some rounds, disturbed least by neighbours."""
    stream = fed(count)
    best_s = float("inf")
    for _ in range(ROUNDS):
        update = build()
        began_s = time.process_time()
        for time_s, value in stream.points:
            update(time_s, value)
        best_s = min(best_s, time.process_time() - began_s)
    return len(stream.points) / best_s


def memory_of(build: Callable[[], Update]) -> float:
    """MB of resident memory that a thousand detectors take."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_grow, args=(build, theirs))
    child.start()
    theirs.close()
    try:
        bytes_each = float(ours.recv())
    finally:
        child.join()
    return bytes_each * 1000 / 1e6


def _grow(build: Callable[[], Update], answer) -> None:
    points = fed(FED_DAYS * PER_DAY).points
    _filled(build, points)  # what is loaded or made once is no series' own
    gc.collect()
    before = _resident_bytes()
    kept = [_filled(build, points) for _ in range(SERIES)]
    gc.collect()
    resident = (_resident_bytes() - before) / SERIES
    tracemalloc.start()
    kept += [_filled(build, points) for _ in range(SERIES_TRACED)]
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] / SERIES_TRACED
    answer.send(max(resident, traced))
    del kept


def _filled(build: Callable[[], Update], points: Sequence[tuple[float, float]]) -> Update:
    update = build()
    for time_s, value in points:
        update(time_s, value)
    return update


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES
