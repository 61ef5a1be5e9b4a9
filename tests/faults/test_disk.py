"""A disk that takes nothing: full, limited, or read-only, under a daemon at work.

Outcome: measuring goes on, and rows wait in memory in a bounded number of which the oldest go
first and are counted; `infercost status`, `/healthz` and the log say what is wrong and what to do,
the alert is told past the store; and all goes on by itself once there is room again.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.scenes import QUICK
from fakes.servers import Scripted, free_port
from fakes.sizes import TIMEOUT_S

OUTAGE_S = 2.0
ALERTING = '[alerting]\nevaluate_every = "500ms"\n'
# A mount of its own in a namespace of its own: nothing is left behind, however the test ends.
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
ON_A_READ_ONLY_DISK = (
    'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
)


ASK = """
import json, sys
from pathlib import Path
from agent.storage.reader import StoreReader
reader = StoreReader.open(Path(sys.argv[1]))
rows = reader.points("device", 0, 2**62, {"device": "gpu0"})
alerts = [point.tags["state"] for point in reader.points("alert", 0, 2**62, {"rule": "broken"})]
print(json.dumps({"times_s": [row.time_ns / 1e9 for row in rows], "alerts": alerts}))
"""


def can_mount():
    tried = ["unshare", "--mount", "true"]
    return (
        os.getuid() == 0
        and shutil.which("unshare") is not None
        and subprocess.run(tried, capture_output=True, check=False).returncode == 0
    )


def faults(port):
    """What `/healthz` names, by name."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            document = json.load(error)
    assert document["dead"] == []
    return {fault["name"]: fault["text"] for fault in document["faults"]}


def unless_unanswered(condition):
    """The condition, which does not hold where a daemon that waits for its disk did not answer."""

    def holds():
        try:
            return condition()
        except OSError:
            return False

    return holds


class SizeLimit:
    """The system's limit on the size of a file, as a quota has it; it needs no rights."""

    words = "quota, size limit"

    def __init__(self, folder):
        self.place = folder / "disk"
        self.place.mkdir()
        self.wrapper = ()

    def beside(self, _):
        """A command line's beginning that sees the files as the daemon does."""
        return ()

    def refuse(self, daemon):
        # The daemon's output is far below it; all that the store would write is above.
        self._limits = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (16_384, self._limits[1]))

    def relent(self, daemon):
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, self._limits)


class FullDisk(SizeLimit):
    """A small file system of the daemon's own, filled to the last byte."""

    words = "free space on its file system"

    def __init__(self, folder):
        super().__init__(folder)
        self.wrapper = ("unshare", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh", self.place)

    def beside(self, daemon):
        return ("nsenter", "--target", str(daemon.pid), "--mount")

    def refuse(self, daemon):
        self._ballast = Path(f"/proc/{daemon.pid}/root{self.place}/ballast")
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def relent(self, _):
        self._ballast.unlink()


class MadeReadOnly(SizeLimit):
    """Files that nobody may change any more, also who has them open: as after an error of ext4.

    But for the index that SQLite maps (-shm): a process that writes into the mapping of such a file
    gets SIGBUS, which ends it, and whether it has to write there is a matter of moments.
    """

    words = "read-only"

    def refuse(self, _):
        self._files = [str(self.place / name) for name in ("infercost.db", "infercost.db-wal")]
        subprocess.run(["chattr", "+i", *self._files], check=True)

    def relent(self, _):
        subprocess.run(["chattr", "-i", *self._files], check=True)


def can_make_read_only(folder):
    """Whether this file system, kernel and user know immutable files."""
    file = Path(folder) / "immutable"
    file.touch()
    made = subprocess.run(["chattr", "+i", file], capture_output=True, check=False).returncode == 0
    subprocess.run(["chattr", "-i", file], capture_output=True, check=False)
    file.unlink()
    return made


def rows_of(disk, daemon):
    """The times of a GPU's rows in s, and the states of the alert, as the store has them."""
    done = subprocess.run(
        [*disk.beside(daemon), sys.executable, "-c", ASK, str(disk.place / "infercost.db")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as _folder:
    MECHANISMS = [
        SizeLimit,
        *([FullDisk] if can_mount() else []),
        *([MadeReadOnly] if can_make_read_only(_folder) else []),
    ]


def status_of(disk, daemon):
    """What `infercost status` says, run where the daemon's disk is seen."""
    command = [sys.executable, "-m", "agent", "--config", str(daemon.config), "status"]
    done = subprocess.run(
        [*disk.beside(daemon), *command], capture_output=True, text=True, check=False
    )
    return done.stdout


def told_by(hook):
    """Name and state of each alert that a webhook got."""
    alerts = [json.loads(body)["alert"] for _, _, _, body in hook.requests]
    return [(alert["name"], alert["state"]) for alert in alerts]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_measuring_goes_on_in_memory_and_all_recovers_by_itself(
    daemon_in, gpus_of, tmp_path, mechanism
):
    disk, port = mechanism(tmp_path), free_port()
    with Scripted(lambda *_: (200, {}, b"{}")) as hook:
        daemon = daemon_in(disk.wrapper, **gpus_of(2).env())
        inside = disk.place / "infercost.db"
        daemon.config.write_text(
            f'{QUICK}{ALERTING}[http]\nlisten = "127.0.0.1:{port}"\n[store]\npath = "{inside}"\n'
            f'[[notifier]]\nname = "ops"\nkind = "webhook"\nurl = "{hook.url}/ops"\n'
        )
        daemon.start()
        daemon.wait_for(lambda: rows_of(disk, daemon)["times_s"])

        disk.refuse(daemon)
        text = daemon.wait_for(unless_unanswered(lambda: faults(port).get("store_failing")))
        assert disk.words in text
        assert "points wait in memory" in text
        assert "rows wait in memory" in daemon.output.read_text()
        since_s = time.time()
        daemon.wait_for(lambda: time.time() > since_s + OUTAGE_S)
        until_s = time.time()
        waiting = rows_of(disk, daemon)["times_s"]
        assert not [time_s for time_s in waiting if time_s > since_s]
        # Memory is bounded, and the sensors go on: none of them is set aside or restarted.
        assert set(faults(port)) <= {"store_failing", "disk_low", "alerts_failing"}
        # It is said where an operator looks, and told, although nothing can be stored.
        assert "FAULT  " + text.partition(";")[0] in status_of(disk, daemon)
        daemon.wait_for(lambda: ("broken", "firing") in told_by(hook))

        disk.relent(daemon)
        daemon.wait_for(unless_unanswered(lambda: "store_failing" not in faults(port)))
        assert "the store takes rows again" in daemon.output.read_text()
        after = daemon.wait_for(
            lambda: (found := rows_of(disk, daemon)["times_s"])[len(waiting) + 5 :] and found
        )
        # What was measured meanwhile is there, in the order of its times.
        assert [time_s for time_s in after if since_s < time_s < until_s]
        assert after == sorted(after)
        daemon.wait_for(lambda: "resolved" in rows_of(disk, daemon)["alerts"])
        daemon.wait_for(lambda: ("broken", "resolved") in told_by(hook))
        # Each is told once: what went past the store is not told again from it.
        told = [alert for alert in told_by(hook) if alert[0] == "broken"]
        assert len(told) == len(set(told))
        assert "Traceback" not in daemon.output.read_text()


@pytest.mark.skipif(not can_mount(), reason="only root may mount, and not in every container")
def test_a_daemon_on_a_read_only_disk_says_so_and_ends_for_its_supervisor_to_try_again(
    daemon_in, tmp_path
):
    place = tmp_path / "disk"
    place.mkdir()
    daemon = daemon_in(("unshare", "--mount", "sh", "-c", ON_A_READ_ONLY_DISK, "sh", place))
    daemon.config.write_text(f'[store]\npath = "{place / "infercost.db"}"\n')
    daemon.spawn()
    assert daemon.wait() == 1
    said = daemon.output.read_text()
    assert "mount its file system read-write" in said
    assert "Traceback" not in said
    assert list(place.iterdir()) == []
