"""A child's mark finds what left its group, and nothing else."""

import os
import subprocess
import sys
import time
from pathlib import Path

from agent.child_mark import NAME, kill_marked, new_mark

# Says the id of a process that is nobody's child and in no group that we know.
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


def is_alive(pid):
    """Whether it runs; one that nobody waits for yet does not."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.01)
    return True


def test_a_process_that_made_itself_a_daemon_is_found_by_its_mark_alone():
    mark, other = new_mark(), new_mark()
    pid, spared = started_daemon(mark), started_daemon(other)
    assert kill_marked(mark) == {pid}
    assert not is_alive(pid)
    assert kill_marked(other) == {spared}
    assert not is_alive(spared)


def test_a_word_that_only_contains_the_mark_is_no_mark(tmp_path):
    mark = new_mark()
    environ = tmp_path / str(os.getpid()) / "environ"
    environ.parent.mkdir()
    environ.write_text(f"X{NAME}={mark[NAME]}\0{NAME}={mark[NAME]}0\0")
    assert kill_marked(mark, tmp_path) == set()


def test_what_may_not_be_read_or_is_gone_is_passed_over(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "999999999").mkdir()
    (tmp_path / "self").mkdir()
    assert kill_marked(new_mark(), tmp_path) == set()
