"""The mark of a child finds processes that left its group, and no others."""

import os
import subprocess
import sys

from costprobe.adapters.host.processes import NAME, kill_marked, new_mark
from fakes.processes import is_alive

# Prints the pid of an orphaned process in a process group of its own.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os._exit(0)
    os.closerange(0, 3)
    time.sleep(600)
"""


def started_daemon(mark):
    env = {**os.environ, **mark}
    done = subprocess.run(
        [sys.executable, "-c", DAEMON], env=env, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_daemonized_process_is_found_by_its_mark(wait_until):
    mark, other = new_mark(), new_mark()
    pid, spared = started_daemon(mark), started_daemon(other)
    assert kill_marked(mark) == {pid}
    wait_until(lambda: not is_alive(pid))
    assert kill_marked(other) == {spared}
    wait_until(lambda: not is_alive(spared))


def test_argument_that_contains_the_mark_does_not_match(tmp_path):
    mark = new_mark()
    environ = tmp_path / str(os.getpid()) / "environ"
    environ.parent.mkdir()
    environ.write_text(f"X{NAME}={mark[NAME]}\0{NAME}={mark[NAME]}0\0")
    assert kill_marked(mark, tmp_path) == set()


def test_unreadable_and_ended_processes_are_skipped(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "999999999").mkdir()
    (tmp_path / "self").mkdir()
    assert kill_marked(new_mark(), tmp_path) == set()
