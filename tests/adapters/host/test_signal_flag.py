"""The flag that a signal handler may set."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from costprobe.adapters.host.processes import SignalFlag, SignalWakeUp

# Signals so often that many arrive while the main thread is inside `wait` or `clear`.
SIGNALLED = """
import signal
from costprobe.adapters.host.processes import SignalFlag

flag = SignalFlag()
signal.signal(signal.SIGALRM, lambda *_: flag.set())
signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
for _ in range(4_000):
    while not flag.wait(1):
        pass
    flag.clear()
signal.setitimer(signal.ITIMER_REAL, 0)
print("through")
"""


def test_signal_handler_sets_the_flag_while_its_thread_waits():
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "through\n"


def test_flag_stays_set_until_cleared_and_wakes_all_waiters():
    flag = SignalFlag()
    assert (flag.is_set(), flag.wait(0.001)) == (False, False)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(flag.wait, 60) for _ in range(3)]
        flag.set()
        assert [each.result() for each in waiting] == [True] * 3
    assert (flag.is_set(), flag.wait(0)) == (True, True)
    flag.clear()
    assert (flag.is_set(), flag.wait(0.001)) == (False, False)


def test_signal_before_a_wait_ends_the_wait():
    wake_up = SignalWakeUp()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    fd_before = signal.set_wakeup_fd(wake_up.fd)
    try:
        signal.raise_signal(signal.SIGUSR1)
        wake_up.wait(3600)
        wake_up.set()
        wake_up.set()
        wake_up.wait(3600)
        wake_up.wait(0.001)
    finally:
        signal.set_wakeup_fd(fd_before)
        signal.signal(signal.SIGUSR1, before)
