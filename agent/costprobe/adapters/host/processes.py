"""Child processes: their environment, killing of all descendants, core dumps, signal events.

The environment of a child is ours without secrets and systemd's variables. It is a denylist: a
probe must run as the serving stack does, whose allocators, kernels and caches depend on variables
that cannot be enumerated, and a missing one would change the measurement.

A process group is killed by one signal, but every program that daemonizes leaves it (setsid(2)).
It rarely clears its environment, so each child gets a unique variable there, and every process
with that variable is a descendant.

Core dumps are prevented, because they would contain secrets.
"""

from __future__ import annotations

import os
import re
import resource
import secrets
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final

# PWD matches the pattern of a password variable.
_HARMLESS: Final = frozenset({"PWD"})
# Set by systemd for the main process only: systemd.exec(5), sd_notify(3).
_OF_THE_SERVICE: Final = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "ENCRYPTED_CREDENTIALS_DIRECTORY",
        "FDSTORE",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
# Short words match only between underscores: TOKENIZERS_PARALLELISM is not a secret.
_SECRET_NAME: Final = re.compile(
    r"(?:token|secret|passwo?r?d|passphrase|credential|api_?key|cookie|connection_string)s?(?:_|$)"
    r"|(?:^|_)(?:auth|authorization|key|keys|pass|pat|pw|pwd|dsn|webhook)(?:_|$)",
    re.IGNORECASE,
)
# A URL with a user, password or token: of a proxy, a database, a package index.
_URL_WITH_USER: Final = re.compile(r"://[^/\s@]+@")
NAME: Final = "COSTPROBE_CHILD"
ROUNDS_MAX: Final = 20
_PROC: Final = Path("/proc")
FILTER: Final = "/proc/self/coredump_filter"
# CPython's `SimpleQueue.get` recomputes the remaining time after a spurious wake-up. With a shorter
# timeout the remainder may be negative, which means to wait indefinitely (seen with 3.11).
LEAST_WAIT_S: Final = 0.001


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a child process.

    Args:
        environ: Our own environment.
    """
    return {name: value for name, value in environ.items() if not is_withheld(name, value)}


def is_withheld(name: str, value: str) -> bool:
    """Return whether a variable is a secret by its name or value, or only for the service.

    Args:
        name: Name of the variable.
        value: Its value.
    """
    if name in _OF_THE_SERVICE or is_secret_name(name):
        return True
    return name not in _HARMLESS and _URL_WITH_USER.search(value) is not None


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name is a secret."""
    return name not in _HARMLESS and _SECRET_NAME.search(name) is not None


def new_mark() -> dict[str, str]:
    """Return a unique variable to add to a child's environment."""
    return {NAME: secrets.token_hex(8)}


def kill_marked(mark: dict[str, str], proc: Path = _PROC) -> set[int]:
    """Kill every process with a mark, repeatedly until none is found, at most ROUNDS_MAX times.

    A pidfd refers to each process while its environment is read, so that a process that reuses its
    id is not killed.

    Args:
        mark: The result of `new_mark`.
        proc: Root of procfs; the environment of other users' processes is not readable.

    Returns:
        Their process ids.
    """
    marking = b"%b=%b" % (NAME.encode(), mark[NAME].encode())
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit()]
        killed_pids = {pid for pid in pids if _killed(pid, marking, proc)}
        if not killed_pids:
            break
        killed |= killed_pids
    return killed


def _killed(pid: int, marking: bytes, proc: Path) -> bool:
    """Return whether a process had the mark and was killed; a zombie has no environment."""
    # It ended, belongs to another user, or the kernel is older than 5.3 and has no pidfd.
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if marking in (proc / str(pid) / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def forbid_core_dumps(dump_filter: str | Path = FILTER) -> None:
    """Prevent core dumps of this process and its children; both settings survive exec.

    RLIMIT_CORE prevents a core file, but not a dump that the kernel pipes to a program such as
    systemd-coredump (core(5)); for these the filter excludes all memory. The process stays dumpable
    (PR_SET_DUMPABLE), because otherwise /proc/PID/smaps would not be readable for its operator.

    Args:
        dump_filter: The kernel's file that selects the memory of a dump.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A kernel without ELF core dumps has no such file.
    with suppress(OSError), open(dump_filter, "w", encoding="ascii") as file:  # noqa: PTH123 - without pathlib
        file.write("0")


class SignalFlag(Event):
    """A `threading.Event` without a lock.

    A signal handler runs in the main thread between two bytecodes, also while that thread is inside
    `Event.wait` and holds the lock that `Event.set` takes: a deadlock. `SimpleQueue.put` is
    reentrant, by Python's documentation of `queue.SimpleQueue`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._queue: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether it was set and not cleared since."""
        return self._is_set

    def set(self) -> None:
        """Set it and wake waiting threads; safe in a signal handler."""
        self._is_set = True
        self._queue.put(None)

    def clear(self) -> None:
        """Clear it; a `set` during this call is not lost."""
        self._is_set = False
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` s; return whether it is set."""
        if self._is_set:
            return True
        try:
            self._queue.get(timeout=timeout if timeout is None else max(timeout, LEAST_WAIT_S))
        except Empty:
            return self._is_set
        self._queue.put(None)  # for other waiting threads
        return self._is_set


class SignalWakeUp:
    """Ends the main thread's wait, also at a signal that arrives just before the wait.

    CPython calls a signal's handler between two bytecodes. A signal that arrives between the last of
    them and a wait is handled after the wait; the interpreter itself writes to `fd` at once.

    Attributes:
        fd: For `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self._ends, self.fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._ends, select.POLLIN)

    def set(self) -> None:
        """End the present or next wait; safe in a signal handler."""
        with suppress(BlockingIOError):  # a full pipe ends the wait, too
            os.write(self.fd, b"\0")

    def wait(self, timeout_s: float) -> None:
        """Wait for `set` or a signal, at most `timeout_s`."""
        self._poll.poll(timeout_s * 1000)
        with suppress(BlockingIOError):
            os.read(self._ends, select.PIPE_BUF)


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - one small read
        return int(file.read().split()[1]) * PAGE_BYTES


def cpu_s() -> float:
    """Return the CPU seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
