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
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.probe_child.runner import ProbeRunner
from fakes.probe_requests import probe_request
from fakes.sizes import TIMEOUT_S, sized

REQUEST = probe_request("transformer", energy=True)
GIGABYTE = 1 << 30
FLOOD_BYTES = sized(GIGABYTE // 16, 8 * GIGABYTE)
GROWTH_BYTES_MAX = 32 << 20
FLOOD = """
block = {block} * 65536
for _ in range({times}):
    os.write({descriptor}, block)
time.sleep(600)
"""


def flooding(descriptor, block):
    times = FLOOD_BYTES // (65536 * len(block))
    return FLOOD.format(descriptor=descriptor, block=block, times=times)


KILLED_FOR_MEMORY = "os.kill(os.getpid(), 9)"
EXITING_WITH_CLOSED_PIPES = """
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(600)
os._exit(3)
"""
# What a child does after it received its request, the kind of the fault, and its deadline in s.
FAILURES = {
    # A limit of the child replaces the host's memory, so that the test cannot exhaust the host.
    "out of memory": (
        """
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
kept = []
while True:
    kept.append(bytearray(1 << 24))
""",
        "died",
        30.0,
    ),
    "killed for memory": (KILLED_FOR_MEMORY, "died", 30.0),
    "hung": (
        """
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(600)
""",
        "deadline",
        1.0,
    ),
    "hung with closed pipes": ("os.closerange(0, 3); time.sleep(600)", "died", 30.0),
    "flooding stdout with lines": (flooding(1, b"x\n"), "malformed", 60.0),
    "flooding stdout with one line": (flooding(1, b"x"), "malformed", 60.0),
    "flooding stderr": (flooding(2, b"x\n"), "deadline", sized(3.0, 60.0)),
    "forking": ("[os.fork() for _ in range(5)]; time.sleep(600)", "deadline", 1.5),
    "daemonizing": (
        """
for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(600)
        os._exit(0)
time.sleep(600)
""",
        "deadline",
        1.5,
    ),
    # The remaining child holds the pipes open, so the end is detected at the deadline.
    "forking and exiting": (
        "os.fork() == 0 and time.sleep(600); os._exit(3)",
        "deadline",
        1.0,
    ),
}


def descriptors():
    """The number of open file descriptors after garbage collection of earlier tests' objects."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def has_ended(mark):
    """Whether no process has `mark` on its command line, forks included."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if mark.encode() in line.read_bytes().split(b"\0"):
                return False
    return True


def run(program, deadline_s, mark):
    """The outcome of one run of a child with this program."""
    text = f"import os, resource, signal, sys, time\nsys.stdin.readline()\n{program}"
    command = (sys.executable, "-c", text, mark)
    with closing(ProbeRunner(command, deadline_s, threading.Event())) as runner:
        return runner.run(REQUEST, "cpu", on_edge=lambda: None, on_progress=lambda _: None)


@pytest.fixture
def flat(wait_until):
    """Nothing that a test starts is left: no process with this mark, descriptor, thread or memory."""
    mark = f"costprobe-test-{os.getpid()}-{time.monotonic_ns()}"
    run(KILLED_FOR_MEMORY, 30.0, mark)
    before, resident, threads = descriptors(), resident_bytes(), threading.active_count()
    found = SimpleNamespace(mark=mark, grown_bytes=lambda: resident_bytes() - resident)
    yield found
    wait_until(lambda: has_ended(mark), 10)
    assert descriptors() <= before
    assert threading.active_count() <= threads
    assert found.grown_bytes() < GROWTH_BYTES_MAX


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("failure", FAILURES)
def test_failing_child_gives_a_fault_and_leaves_no_process(failure, flat, figures):
    program, kind, deadline_s = FAILURES[failure]
    outcome = run(program, deadline_s, flat.mark)
    assert isinstance(outcome, ProbeFault)
    assert (outcome.kind, bool(outcome.title)) == (kind, True)
    if failure.startswith("flooding"):
        grown = max(0, flat.grown_bytes())
        figures(f"probe child {failure}", bytes=FLOOD_BYTES, memory_growth_bytes=grown)


@pytest.mark.timeout(TIMEOUT_S)
def test_repeated_failing_children_leave_no_process(flat, figures):
    quick = [KILLED_FOR_MEMORY, "sys.exit(7)", "print('x' * 200)", EXITING_WITH_CLOSED_PIPES]
    runs = sized(24, 5000)
    for index in range(runs):
        assert isinstance(run(quick[index % len(quick)], 30.0, flat.mark), ProbeFault)
    figures("failing probe children", runs=runs, memory_growth_bytes=max(0, flat.grown_bytes()))
