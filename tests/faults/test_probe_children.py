"""Probe children that exhaust memory, hang, write gigabytes or fork, repeatedly.

Outcome: each gives a fault of its kind within its deadline and leaves no process and no file
descriptor; the memory of this process, which replaces the daemon, does not grow.
"""

import gc
import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.probe_child.runner import ProbeRunner
from fakes.probe_requests import probe_request
from fakes.sizes import TIMEOUT_S, sized

REQUEST = probe_request("transformer", energy=True)
GIGABYTE = 1 << 30
FLOOD_BYTES = sized(GIGABYTE // 16, 8 * GIGABYTE)
GROWTH_BYTES_MAX = 32 << 20
# A limit of the child replaces the host's memory, so that the test cannot exhaust the host.
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
FLOODING = """
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
# The remaining child holds the pipes open, so the end is detected at the deadline.
FORKING_AND_EXITING = """
sys.stdin.readline()
if os.fork() == 0:
    time.sleep(600)
os._exit(3)
"""
DAEMONIZING = """
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
EXITING_WITH_CLOSED_PIPES = """
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(600)
os._exit(3)
"""


def flooding(descriptor, block):
    times = FLOOD_BYTES // (65536 * len(block))
    return FLOODING.format(descriptor=descriptor, block=block, times=times)


FAILURES = {
    "out of memory": (HUNGRY, "died", 30.0),
    "killed for memory": (KILLED_FOR_MEMORY, "died", 30.0),
    "hung": (HANGING, "deadline", 1.0),
    "hung with closed pipes": (HANGING_WITH_CLOSED_PIPES, "died", 30.0),
    "flooding stdout with lines": (flooding(1, b"x\n"), "malformed", 60.0),
    "flooding stdout with one line": (flooding(1, b"x"), "malformed", 60.0),
    "flooding stderr": (flooding(2, b"x\n"), "deadline", sized(3.0, 60.0)),
    "forking": (FORKING, "deadline", 1.5),
    "daemonizing": (DAEMONIZING, "deadline", 1.5),
    "forking and exiting": (FORKING_AND_EXITING, "deadline", 1.0),
}


def descriptors():
    """The number of open file descriptors after garbage collection of earlier tests' objects."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def left_of(mark):
    """Ids of processes with `mark` on their command line, including forks."""
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
    """Whether all processes with `mark` end within 10 s."""
    for _ in range(200):
        if not left_of(mark):
            return True
        time.sleep(0.05)
    return False


def run(program, deadline_s, mark):
    """The outcome of one run of a child with this program."""
    runner = ProbeRunner(
        (sys.executable, "-c", f"import os, sys, time\n{program}", mark),
        deadline_s,
        threading.Event(),
    )
    try:
        return runner.run(REQUEST, "cpu", on_edge=lambda: None, on_progress=lambda _: None)
    finally:
        runner.close()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("failure", FAILURES)
def test_failing_child_gives_a_fault_and_leaves_no_process(failure, figures):
    program, kind, deadline_s = FAILURES[failure]
    before, resident_before = descriptors(), resident_bytes()
    mark = f"costprobe-test-{os.getpid()}-{time.monotonic_ns()}"
    outcome = run(program, deadline_s, mark)
    assert isinstance(outcome, ProbeFault)
    assert (outcome.kind, bool(outcome.title)) == (kind, True)
    assert is_gone(mark)
    assert descriptors() <= before
    grown = resident_bytes() - resident_before
    assert grown < GROWTH_BYTES_MAX
    if failure.startswith("flooding"):
        figures(f"probe child {failure}", bytes=FLOOD_BYTES, memory_growth_bytes=max(0, grown))


@pytest.mark.timeout(TIMEOUT_S)
def test_repeated_failing_children_leave_no_process(figures):
    quick = [KILLED_FOR_MEMORY, "sys.exit(7)", "print('x' * 200)", EXITING_WITH_CLOSED_PIPES]
    mark = f"costprobe-test-{os.getpid()}-{time.monotonic_ns()}"
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
    figures("failing probe children", runs=runs, memory_growth_bytes=max(0, grown))
