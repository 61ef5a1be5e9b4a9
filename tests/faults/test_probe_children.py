"""Probe children that take all memory, hang, shout gigabytes and fork, run after run.

Outcome: each comes to a fault of its kind within its deadline; nothing of it is left, neither a
process nor a file descriptor; and this process, which stands for the daemon, does not grow.
"""

import gc
import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes.sizes import TIMEOUT_S, sized

from agent.probing.outcome import ProbeFault
from agent.probing.request import ProbeRequest
from agent.probing.runner import ProbeRunner

REQUEST = ProbeRequest("p", "transformer", "cpu", "fp32", 1, energy=True)
GIGABYTE = 1 << 30
SHOUTED_BYTES = sized(GIGABYTE // 4, 8 * GIGABYTE)
GROWTH_BYTES_MAX = 32 << 20
# A limit of the child's own stands for the host's memory: the test takes no host down.
HUNGRY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
sys.stdin.readline()
kept = []
while True:
    kept.append(bytearray(1 << 24))
"""
KILLED_FOR_MEMORY = """
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
HANGING = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
sys.stdin.readline()
while True:
    time.sleep(600)
"""
HANGING_WITH_CLOSED_PIPES = """
sys.stdin.readline()
for descriptor in (0, 1, 2):
    os.close(descriptor)
time.sleep(600)
"""
SHOUTING = """
sys.stdin.readline()
block = {block} * 65536
for _ in range({times}):
    os.write({descriptor}, block)
time.sleep(600)
"""
FORKING = """
sys.stdin.readline()
for _ in range(40):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
time.sleep(600)
"""
# What it left behind holds its pipes open, so that its end is seen at the deadline.
FORKING_AND_GOING = """
sys.stdin.readline()
if os.fork() == 0:
    time.sleep(600)
os._exit(3)
"""
DAEMONS_OF_ITS_OWN = """
sys.stdin.readline()
for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
GOING_WITH_ITS_PIPES_CLOSED = """
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(600)
os._exit(3)
"""


def shouting(descriptor, block):
    times = SHOUTED_BYTES // (65536 * len(block))
    return SHOUTING.format(descriptor=descriptor, block=block, times=times)


MISDEEDS = {
    "out of memory": (HUNGRY, "died", 30.0),
    "killed for memory": (KILLED_FOR_MEMORY, "died", 30.0),
    "hung": (HANGING, "deadline", 1.0),
    "hung with closed pipes": (HANGING_WITH_CLOSED_PIPES, "died", 30.0),
    "shouting lines on its output": (shouting(1, b"x\n"), "rubbish", 60.0),
    "shouting one line on its output": (shouting(1, b"x"), "rubbish", 60.0),
    "shouting on its errors": (shouting(2, b"x\n"), "deadline", sized(3.0, 60.0)),
    "forking": (FORKING, "deadline", 1.5),
    "making daemons": (DAEMONS_OF_ITS_OWN, "deadline", 1.5),
    "forking and going": (FORKING_AND_GOING, "deadline", 1.0),
}


def descriptors():
    """How many are open, once what earlier tests left to the collector is gone."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def left_of(mark):
    """Processes that were started with this word on their command line, and their forks."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if mark.encode() in words:
            found.append(int(line.parent.name))
    return found


def is_gone(mark):
    """Whether nothing is left, once the kernel has had the time to end what was killed."""
    for _ in range(200):
        if not left_of(mark):
            return True
        time.sleep(0.05)
    return False


def run(program, deadline_s, mark):
    """What one run of a child with this program came to."""
    runner = ProbeRunner(
        sys.executable,
        deadline_s,
        threading.Event(),
        command=lambda python: (python, "-c", f"import os, sys, time\n{program}", mark),
    )
    try:
        return runner.run(REQUEST, "cpu", on_edge=lambda: None, on_progress=lambda _: None)
    finally:
        runner.close()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_it_comes_to_a_fault_and_leaves_nothing(misdeed, figures):
    program, kind, deadline_s = MISDEEDS[misdeed]
    before, resident_before = descriptors(), resident_bytes()
    mark = f"infercost-test-{os.getpid()}-{time.monotonic_ns()}"
    outcome = run(program, deadline_s, mark)
    assert isinstance(outcome, ProbeFault)
    assert (outcome.kind, bool(outcome.title)) == (kind, True)
    assert is_gone(mark)
    assert descriptors() <= before
    grown = resident_bytes() - resident_before
    assert grown < GROWTH_BYTES_MAX
    if misdeed.startswith("shouting"):
        figures(f"probe child {misdeed}", bytes=SHOUTED_BYTES, grown_by_bytes=max(0, grown))


@pytest.mark.timeout(TIMEOUT_S)
def test_run_after_run_of_misdeeds_leaves_nothing(figures):
    quick = [KILLED_FOR_MEMORY, "sys.exit(7)", "print('x' * 200)", GOING_WITH_ITS_PIPES_CLOSED]
    mark = f"infercost-test-{os.getpid()}-{time.monotonic_ns()}"
    runs = sized(24, 5000)
    for program in quick:
        run(program, 30.0, mark)
    before, resident_before, threads = descriptors(), resident_bytes(), threading.active_count()
    for index in range(runs):
        outcome = run(quick[index % len(quick)], 30.0, mark)
        assert isinstance(outcome, ProbeFault)
    assert is_gone(mark)
    assert descriptors() <= before
    assert threading.active_count() == threads
    grown = resident_bytes() - resident_before
    assert grown < GROWTH_BYTES_MAX
    figures("probe children misbehave", runs=runs, grown_by_bytes=max(0, grown))
