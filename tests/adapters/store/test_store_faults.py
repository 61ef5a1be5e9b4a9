"""A full disk, and damaged, foreign or newer files: each error names its fix."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from costprobe.adapters.store.database import HINTS, StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from store_samples import ROOT, T0_NS, lines_of, point, query, run_python

HERE = Path(__file__).parent
# A mount in a namespace of its own is removed with it, however the test ends.
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=3m,mode=700 tmpfs "$1" && exec "$2" "$3" "$1" disk'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
OPEN_AND_TELL = """
import sys
from pathlib import Path
from fakes.clock import FakeClock
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
path = Path(sys.argv[1]) / "costprobe.db"
try:
    Store.open(path, FakeClock()).append([])
except StoreError as error:
    print(error.fault)
print(len(list(StoreReader.open(path).points("device", 0, 2**62))))
"""


def in_own_mounts(script, *arguments):
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def can_mount():
    return (
        os.getuid() == 0
        and subprocess.run(
            ["unshare", "--mount", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.parametrize("kind", ["disk", "limit"])
def test_full_disk_loses_only_rows_beyond_the_memory_buffer(tmp_path, kind):
    if kind == "disk" and can_mount():
        done = in_own_mounts(ON_A_SMALL_DISK, tmp_path, sys.executable, HERE / "fill_the_disk.py")
    else:
        done = run_python("fill_the_disk.py", tmp_path, "limit")
        kind = "limit"
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    fault = {"disk": "full", "limit": "io"}[kind]
    assert all(HINTS[fault] in text for text in outcome.pop("faults"))
    kept, dropped = outcome["kept"], outcome["dropped"]
    assert kept > 0 < dropped
    assert outcome == {
        "given": kept + 300 + dropped,
        "kept": kept,
        "waiting": 300,
        "dropped": dropped,
        "dropped_recorded": dropped,
        "error": fault,
        "flushed": True,
        "fault_after": None,
        "stored": kept + 300,
    }


@pytest.mark.skipif(not can_mount(), reason="only root may mount, and not in every container")
def test_read_only_file_system_is_reported_and_readable(store, path):
    store.append([point(1), point(2)])
    store.close()
    done = in_own_mounts(READ_ONLY, path.parent, sys.executable, OPEN_AND_TELL)
    assert done.stdout.split() == ["read_only", "2"], done.stderr


def test_lock_of_another_writer_is_awaited_then_reported(path):
    store = Store.open(path, FakeClock(), busy_timeout_ms=50)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="second daemon") as caught:
        store.append([point(1)])
    assert caught.value.fault == "locked"
    other.execute("COMMIT")
    other.close()
    store.append([point(1)])
    assert len(lines_of(store)) == 1
    store.close()


def open_store(path):
    return Store.open(path, FakeClock())


def made_newer(path):
    open_store(path).close()
    query(path, "INSERT INTO migrations (name, applied_ns) VALUES ('9999 more', 0)")


# What is in the place of a store, the fault, and words of the error.
FOREIGN = (
    (
        lambda path: path.write_bytes(b"no database" * 200),
        "corrupt",
        "move it and its -wal to another",
    ),
    (made_newer, "newer", r"migration is '9999 more'.*a newer costprobe created it"),
    *(
        (lambda path, sql=sql: query(path, sql), "foreign", "another program's database")
        for sql in (
            "CREATE TABLE theirs (x)",
            "PRAGMA application_id = 7",
            "CREATE TABLE migrations (x)",
        )
    ),
    (Path.mkdir, None, r"costprobe\.db"),
)


def test_what_is_no_store_of_this_version_is_refused_by_name_and_unchanged(tmp_path):
    for number, (make, fault, words) in enumerate(FOREIGN):
        path = tmp_path / str(number) / "costprobe.db"
        path.parent.mkdir()
        make(path)
        content = path.is_file() and path.read_bytes()
        for opener in (open_store, StoreReader.open):
            with pytest.raises(StoreError, match=words) as caught:
                opener(path)
            assert str(path) in str(caught.value)
            assert fault in (None, caught.value.fault)
        assert (path.is_file() and path.read_bytes()) == content


def damage_pages(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def test_damaged_and_truncated_files_are_reported_when_they_are_used(tmp_path):
    for damage in (damage_pages, lambda path: os.truncate(path, 8192)):
        path = tmp_path / f"{damage.__name__}.db"
        store = open_store(path)
        store.append([point(second, title="x" * 500) for second in range(200)])
        store.close()
        damage(path)
        uses = [
            lambda path=path: lines_of(open_store(path)),
            lambda path=path: list(StoreReader.open(path).lines(0, 2**62)),
            lambda path=path: open_store(path).append([point(1, "new")]),
        ]
        for use in uses if damage is damage_pages else uses[:2]:
            with pytest.raises(StoreError) as caught:
                use()
            assert caught.value.fault == "corrupt"


def test_file_names_may_contain_special_characters(tmp_path):
    path = tmp_path / "a b?mode=memory#é%20" / "x%2f.db"
    store = open_store(path)
    store.append([point(1)])
    reader = StoreReader.open(path)
    assert [each.time_ns - T0_NS for each in reader.points("device", 0, 2**62)] == [10**9]
    reader.close()
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["x%2f.db"]
