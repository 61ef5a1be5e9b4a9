"""Speed and memory of a detector: updates per second of one series, and bytes of 1,000 series.

Memory is measured in a separate process that builds the detectors of many series and feeds all of
them with the same values. The result is the growth of its resident memory, or the bytes that Python
allocated if they are more: small objects fit into memory that the process already had.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from streams import VALUES_PER_DAY, Recipe, Stream, generate

Update = Callable[[float, float], list[str]]
PAGE_BYTES = 4096
STREAM_DAYS = 4
ROUNDS = 3
SERIES = 200
TRACED_SERIES = 10


def daily_stream(count: int) -> Stream:
    """Return about `count` values with a daily pattern."""
    return generate(Recipe(count / VALUES_PER_DAY, 0.01, 0.3, daily=0.05), random.Random(1))


def updates_per_s_of(build: Callable[[], Update], count: int) -> float:
    """Return updates per second of CPU time: the fastest round, which other load disturbed least."""
    stream = daily_stream(count)
    fastest_s = float("inf")
    for _ in range(ROUNDS):
        update = build()
        began_s = time.process_time()
        for time_s, value in stream.points:
            update(time_s, value)
        fastest_s = min(fastest_s, time.process_time() - began_s)
    return len(stream.points) / fastest_s


def memory_mb_of(build: Callable[[], Update]) -> float:
    """Return the resident memory of 1,000 detectors in MB."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    child = context.Process(target=_send_bytes_per_detector, args=(build, sender))
    child.start()
    sender.close()
    try:
        bytes_per_detector = float(receiver.recv())
    finally:
        child.join()
    return bytes_per_detector * 1000 / 1e6


def _send_bytes_per_detector(build: Callable[[], Update], sender: Connection) -> None:
    points = daily_stream(STREAM_DAYS * VALUES_PER_DAY).points
    _trained(build, points)  # excludes what is loaded or created only once
    gc.collect()
    before_bytes = _resident_bytes()
    detectors = [_trained(build, points) for _ in range(SERIES)]
    gc.collect()
    resident_bytes = (_resident_bytes() - before_bytes) / SERIES
    tracemalloc.start()
    detectors += [_trained(build, points) for _ in range(TRACED_SERIES)]
    gc.collect()
    traced_bytes = tracemalloc.get_traced_memory()[0] / TRACED_SERIES
    sender.send(max(resident_bytes, traced_bytes))
    del detectors


def _trained(build: Callable[[], Update], points: Sequence[tuple[float, float]]) -> Update:
    update = build()
    for time_s, value in points:
        update(time_s, value)
    return update


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES
