"""A daemon whose processes are observed through /proc while it runs."""

import os
import threading
from pathlib import Path
from typing import NamedTuple

from fakes.daemon import DaemonProcess
from fakes.processes import children_of, descendants_of

LOOK_S = 0.03


class Seen(NamedTuple):
    """The /proc data of a process."""

    command: bytes
    environ: bytes
    core_limit: str
    dump_filter: str
    group: int


class WatchedDaemon(DaemonProcess):
    """`costprobe run`, with everything in one folder, while the context is open.

    Args:
        folder: For its configuration, its store and its output.
        text: Its configuration.
        env: Added to our environment.

    Attributes:
        seen: The last data of all processes that have run, by id.
    """

    def __init__(self, folder, text, env):
        super().__init__(folder, env)
        self.store = folder / "state" / "costprobe.db"
        self.store.parent.mkdir(mode=0o700)
        self.write(text)
        self.seen = {}
        # Servers of other tests are ignored.
        self._others = set(children_of(os.getpid()))
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look)

    def __enter__(self):
        self._watch.start()
        try:
            self.start()
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._watch.join()
        self.stop()

    def _look(self):
        while not self._ended.wait(LOOK_S):
            # The test's commands and their children are observed too.
            for pid, parent in descendants_of(os.getpid(), self._others).items():
                try:
                    found = _process_facts(pid, parent)
                except OSError:
                    continue
                if found is not None:
                    self.seen[pid] = found


def _process_facts(pid, parent):
    folder = Path(f"/proc/{pid}")
    command = (folder / "cmdline").read_bytes()
    # Until it runs its own program, a child is a copy of its parent.
    if not command or command == Path(f"/proc/{parent}/cmdline").read_bytes():
        return None
    limits = (folder / "limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    environ = (folder / "environ").read_bytes()
    dump_filter = (folder / "coredump_filter").read_text().strip()
    # The process ended meanwhile.
    if not environ or not dump_filter:
        return None
    return Seen(
        command,
        environ,
        " ".join(core.split()[4:6]),
        dump_filter,
        os.getpgid(pid),
    )
