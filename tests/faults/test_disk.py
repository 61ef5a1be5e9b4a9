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
import time
from contextlib import closing, suppress

import pytest
from fakes.scenes import QUICK_STATUS
from fakes.servers import Scripted, answered, free_port
from fakes.sizes import TIMEOUT_S

OUTAGE_S = 1.0
# A mount in a namespace of its own is removed with it, however the test ends.
ON_A_READ_ONLY_DISK = (
    'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
)


def can_mount():
    tried = ["unshare", "--mount", "true"]
    return (
        os.getuid() == 0
        and shutil.which("unshare") is not None
        and subprocess.run(tried, capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(
    not can_mount(), reason="only root may mount, and not in every container"
)


class SizeLimit:
    """RLIMIT_FSIZE, which fails writes as a quota does; it needs no privileges."""

    words = "quota, size limit"

    def __init__(self, folder):
        self.folder = folder

    def close(self):
        """Nothing is left."""

    def start_outage(self, daemon):
        # The daemon's log is far smaller than the limit; the store's files are larger.
        self._limits = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (16_384, self._limits[1]))

    def end_outage(self, daemon):
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, self._limits)


class FullDisk(SizeLimit):
    """A small file system, completely full."""

    words = "free space on its file system"

    def __init__(self, folder):
        super().__init__(folder)
        options = ("-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs")
        subprocess.run(["mount", *options, folder], check=True)

    def close(self):
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def start_outage(self, _):
        self._ballast = self.folder / "ballast"
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

    def _change(self, how):
        files = [self.folder / name for name in ("costprobe.db", "costprobe.db-wal")]
        return subprocess.run(["chattr", how, *files], check=False).returncode == 0

    def start_outage(self, _):
        if not self._change("+i"):
            pytest.skip("this file system, kernel or user allows no immutable files")

    def end_outage(self, _):
        self._change("-i")


MECHANISMS = [
    SizeLimit,
    pytest.param(FullDisk, marks=[pytest.mark.soak, needs_mounts]),
    pytest.param(MadeReadOnly, marks=pytest.mark.soak),
]


def faults(port):
    """The faults of `/healthz`: text by name."""
    try:
        document = json.loads(answered(f"http://127.0.0.1:{port}/healthz")[2])
    except OSError:
        return {"unreachable": ""}
    assert document["dead"] == []
    return {fault["name"]: fault["text"] for fault in document["faults"]}


def times_of(daemon):
    """The times of a GPU's rows in s."""
    return [row.time_ns / 1e9 for row in daemon.points("device", device="gpu0")]


def broken_in(hook):
    """The states of the alert `broken` that the webhook received."""
    alerts = [json.loads(body)["alert"] for _, _, _, body in hook.requests]
    return [alert["state"] for alert in alerts if alert["name"] == "broken"]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_measuring_continues_in_memory_and_recovers_without_a_restart(
    daemon_in, gpus_of, tmp_path, mechanism
):
    folder, port = tmp_path / "disk", free_port()
    folder.mkdir()
    with Scripted(lambda *_: (200, {}, b"{}")) as hook, closing(mechanism(folder)) as disk:
        daemon = daemon_in(**gpus_of(2).env())
        daemon.store = folder / "costprobe.db"
        daemon.start(
            f'{QUICK_STATUS}[http]\nlisten = "127.0.0.1:{port}"\n'
            f'[[notifier]]\nname = "ops"\nkind = "webhook"\nurl = "{hook.url}/ops"\n'
        )
        daemon.wait_for(lambda: times_of(daemon))

        disk.start_outage(daemon)
        text = daemon.wait_for(lambda: faults(port).get("store_failing"))
        assert disk.words in text
        assert "points are queued in memory" in text
        daemon.wait_for(lambda: "rows are queued in memory" in daemon.output.read_text())
        since_s = time.time()
        daemon.wait_for(lambda: time.time() > since_s + OUTAGE_S)
        until_s = time.time()
        waiting = times_of(daemon)
        assert not [time_s for time_s in waiting if time_s > since_s]
        # Memory is bounded, and no sensor is quarantined or restarted.
        assert set(faults(port)) <= {"store_failing", "disk_low", "alerts_failing"}
        # The status reports the fault and the alert is sent, although nothing can be stored.
        daemon.wait_for(lambda: "firing" in broken_in(hook))
        # Every answer agrees, although the store still says that nothing fires.
        status = daemon.look("status")
        assert "FAULT  " + text.partition(";")[0] in status
        assert "alerts   1 firing" in status
        assert text.partition(";")[0] in daemon.look("alerts", "--exit-code", code=1)

        disk.end_outage(daemon)
        daemon.wait_for(lambda: {"store_failing", "unreachable"}.isdisjoint(faults(port)))
        daemon.wait_for(lambda: "the store accepts rows again" in daemon.output.read_text())
        daemon.wait_for(lambda: len(times_of(daemon)) > len(waiting) + 5)
        after = times_of(daemon)
        # The rows of the outage are stored, in the order of their times.
        assert [time_s for time_s in after if since_s < time_s < until_s]
        assert after == sorted(after)
        daemon.wait_for(lambda: daemon.points("alert", rule="broken", state="resolved"))
        daemon.wait_for(lambda: "resolved" in broken_in(hook))
        # Each alert is sent once: those sent without the store are not sent again from it.
        assert sorted(broken_in(hook)) == sorted(set(broken_in(hook)))
        assert "Traceback" not in daemon.output.read_text()


@needs_mounts
def test_daemon_on_a_read_only_disk_reports_it_and_exits(daemon_in, tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    daemon = daemon_in(("unshare", "--mount", "sh", "-c", ON_A_READ_ONLY_DISK, "sh", folder))
    daemon.store = folder / "costprobe.db"
    daemon.write("")
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
