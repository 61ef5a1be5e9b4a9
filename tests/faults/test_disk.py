"""A running daemon whose disk is full, limited by a quota, or read-only.

Outcome: measuring continues, and rows wait in a bounded buffer in memory, whose oldest are dropped
and counted; `costprobe status`, `/healthz` and the log name the fault and its fix; the alert is
sent without the store; and the daemon recovers by itself once there is space again.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.scenes import QUICK_STATUS
from fakes.servers import Scripted, free_port
from fakes.sizes import TIMEOUT_S

OUTAGE_S = 1.0
# A mount in a namespace of its own is removed with it, however the test ends.
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
ON_A_READ_ONLY_DISK = (
    'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
)


READ_ROWS = """
import json, sys
from pathlib import Path
from costprobe.adapters.store.read import StoreReader
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
    """The faults of `/healthz`: text by name."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            document = json.load(error)
    assert document["dead"] == []
    return {fault["name"]: fault["text"] for fault in document["faults"]}


def false_if_unreachable(condition):
    """`condition`, but false while the daemon does not answer."""

    def holds():
        try:
            return condition()
        except OSError:
            return False

    return holds


class SizeLimit:
    """RLIMIT_FSIZE, which fails writes as a quota does; it needs no privileges."""

    words = "quota, size limit"

    def __init__(self, parent):
        self.folder = parent / "disk"
        self.folder.mkdir()
        self.wrapper = ()

    def command_prefix(self, _):
        """The start of a command line that sees the daemon's files."""
        return ()

    def start_outage(self, daemon):
        # The daemon's log is far smaller than the limit; the store's files are larger.
        self._limits = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (16_384, self._limits[1]))

    def end_outage(self, daemon):
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, self._limits)


class FullDisk(SizeLimit):
    """A small file system that only the daemon sees, completely full."""

    words = "free space on its file system"

    def __init__(self, parent):
        super().__init__(parent)
        self.wrapper = ("unshare", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh", self.folder)

    def command_prefix(self, daemon):
        return ("nsenter", "--target", str(daemon.pid), "--mount")

    def start_outage(self, daemon):
        self._ballast = Path(f"/proc/{daemon.pid}/root{self.folder}/ballast")
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def end_outage(self, _):
        self._ballast.unlink()


class MadeReadOnly(SizeLimit):
    """Immutable files, also for processes that have them open, as after an error of ext4.

    SQLite's memory-mapped index (-shm) stays writable: a process that writes to the mapping of an
    immutable file gets SIGBUS, and whether SQLite writes there depends on timing.
    """

    words = "read-only"

    def start_outage(self, _):
        self._files = [str(self.folder / name) for name in ("costprobe.db", "costprobe.db-wal")]
        subprocess.run(["chattr", "+i", *self._files], check=True)

    def end_outage(self, _):
        subprocess.run(["chattr", "-i", *self._files], check=True)


def can_make_read_only(folder):
    """Whether file system, kernel and user allow immutable files."""
    file = Path(folder) / "immutable"
    file.touch()
    made = subprocess.run(["chattr", "+i", file], capture_output=True, check=False).returncode == 0
    subprocess.run(["chattr", "-i", file], capture_output=True, check=False)
    file.unlink()
    return made


def rows_of(disk, daemon):
    """The times of a GPU's rows in s, and the states of the alert, as the store has them."""
    store = str(disk.folder / "costprobe.db")
    command = [*disk.command_prefix(daemon), sys.executable, "-c", READ_ROWS, store]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as _folder:
    LONG = [
        *([FullDisk] if can_mount() else []),
        *([MadeReadOnly] if can_make_read_only(_folder) else []),
    ]
    MECHANISMS = [SizeLimit, *(pytest.param(one, marks=pytest.mark.soak) for one in LONG)]


def run_beside(disk, daemon, *arguments):
    """Run a command with the daemon's view of its disk."""
    command = [sys.executable, "-m", "costprobe", "--config", str(daemon.config), *arguments]
    return subprocess.run(
        [*disk.command_prefix(daemon), *command], capture_output=True, text=True, check=False
    )


def alerts_of(hook):
    """Name and state of each alert that the webhook received."""
    alerts = [json.loads(body)["alert"] for _, _, _, body in hook.requests]
    return [(alert["name"], alert["state"]) for alert in alerts]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_measuring_continues_in_memory_and_recovers_without_a_restart(
    daemon_in, gpus_of, tmp_path, mechanism
):
    disk, port = mechanism(tmp_path), free_port()
    with Scripted(lambda *_: (200, {}, b"{}")) as hook:
        daemon = daemon_in(disk.wrapper, **gpus_of(2).env())
        inside = disk.folder / "costprobe.db"
        daemon.config.write_text(
            f'{QUICK_STATUS}[http]\nlisten = "127.0.0.1:{port}"\n[store]\npath = "{inside}"\n'
            f'[[notifier]]\nname = "ops"\nkind = "webhook"\nurl = "{hook.url}/ops"\n'
        )
        daemon.start()
        daemon.wait_for(lambda: rows_of(disk, daemon)["times_s"])

        disk.start_outage(daemon)
        text = daemon.wait_for(false_if_unreachable(lambda: faults(port).get("store_failing")))
        assert disk.words in text
        assert "points are queued in memory" in text
        daemon.wait_for(lambda: "rows are queued in memory" in daemon.output.read_text())
        since_s = time.time()
        daemon.wait_for(lambda: time.time() > since_s + OUTAGE_S)
        until_s = time.time()
        waiting = rows_of(disk, daemon)["times_s"]
        assert not [time_s for time_s in waiting if time_s > since_s]
        # Memory is bounded, and no sensor is quarantined or restarted.
        assert set(faults(port)) <= {"store_failing", "disk_low", "alerts_failing"}
        # The status reports the fault and the alert is sent, although nothing can be stored.
        daemon.wait_for(lambda: ("broken", "firing") in alerts_of(hook))
        # Every answer agrees, although the store still says that nothing fires.
        status = run_beside(disk, daemon, "status").stdout
        assert "FAULT  " + text.partition(";")[0] in status
        assert "alerts   1 firing" in status
        listed = run_beside(disk, daemon, "alerts", "--exit-code")
        assert (listed.returncode, listed.stderr) == (1, "")
        assert text.partition(";")[0] in listed.stdout

        disk.end_outage(daemon)
        daemon.wait_for(false_if_unreachable(lambda: "store_failing" not in faults(port)))
        daemon.wait_for(lambda: "the store accepts rows again" in daemon.output.read_text())
        after = daemon.wait_for(
            lambda: (found := rows_of(disk, daemon)["times_s"])[len(waiting) + 5 :] and found
        )
        # The rows of the outage are stored, in the order of their times.
        assert [time_s for time_s in after if since_s < time_s < until_s]
        assert after == sorted(after)
        daemon.wait_for(lambda: "resolved" in rows_of(disk, daemon)["alerts"])
        daemon.wait_for(lambda: ("broken", "resolved") in alerts_of(hook))
        # Each alert is sent once: those sent without the store are not sent again from it.
        sent = [alert for alert in alerts_of(hook) if alert[0] == "broken"]
        assert len(sent) == len(set(sent))
        assert "Traceback" not in daemon.output.read_text()


@pytest.mark.skipif(not can_mount(), reason="only root may mount, and not in every container")
def test_daemon_on_a_read_only_disk_reports_it_and_exits(daemon_in, tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    daemon = daemon_in(("unshare", "--mount", "sh", "-c", ON_A_READ_ONLY_DISK, "sh", folder))
    daemon.config.write_text(f'[store]\npath = "{folder / "costprobe.db"}"\n')
    daemon.spawn()
    assert daemon.wait() == 1
    output = daemon.output.read_text()
    assert "mount its file system read-write" in output
    assert "Traceback" not in output
    assert list(folder.iterdir()) == []


@pytest.mark.timeout(TIMEOUT_S)
def test_stop_counts_the_rows_that_could_not_be_stored(daemon_in, tmp_path):
    disk, daemon = SizeLimit(tmp_path), daemon_in()
    daemon.start(QUICK_STATUS)
    daemon.wait_for(lambda: daemon.points("device"))
    disk.start_outage(daemon)
    daemon.wait_for(lambda: daemon.status()["store"]["fault"])
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    last = daemon.output.read_text().splitlines()[-1]
    assert re.search(r"stopped; [1-9]\d* points? could not be stored and are lost: cannot ", last)
    assert disk.words in last
    assert "Traceback" not in daemon.output.read_text()
