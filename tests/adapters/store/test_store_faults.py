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
    expected = {"disk": "full", "limit": "io"}[kind]
    assert outcome["error"] == expected
    assert all(HINTS[expected] in fault for fault in outcome["faults"])
    assert outcome["kept"] > 0
    assert outcome["waiting"] == 300
    assert outcome["dropped"] == outcome["dropped_recorded"] > 0
    assert outcome["given"] == outcome["kept"] + outcome["waiting"] + outcome["dropped"]
    assert outcome["flushed"]
    assert outcome["fault_after"] is None
    assert outcome["stored"] == outcome["kept"] + outcome["waiting"]


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


OPENERS = pytest.mark.parametrize("opener", [open_store, StoreReader.open])


@OPENERS
def test_file_that_is_not_a_database_is_reported_and_unchanged(path, opener):
    path.parent.mkdir()
    content = b"this is no database at all, but long enough" * 50
    path.write_bytes(content)
    with pytest.raises(StoreError, match="move it and its -wal to another name") as caught:
        opener(path)
    assert caught.value.fault == "corrupt"
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def damage_pages(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


@pytest.mark.parametrize("damage", [damage_pages, lambda path: os.truncate(path, 8192)])
def test_damaged_and_truncated_files_are_reported_when_they_are_used(path, damage):
    store = open_store(path)
    store.append([point(second, title="x" * 500) for second in range(200)])
    store.close()
    damage(path)
    uses = {
        "outbox": lambda: lines_of(open_store(path)),
        "lines": lambda: list(StoreReader.open(path).lines(0, 2**62)),
    }
    if damage is damage_pages:
        uses["append"] = lambda: open_store(path).append([point(1, "new")])
    for use in uses.values():
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.fault == "corrupt"


@OPENERS
def test_newer_store_is_refused_and_unchanged(store, path, opener):
    store.append([point(1)])
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO migrations (name, applied_ns) VALUES ('9999 more', 0)")
    connection.commit()
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"migration is '9999 more'.*a newer costprobe created it"):
        opener(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "sql", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "CREATE TABLE migrations (x)"]
)
def test_foreign_database_is_refused_and_unchanged(path, sql):
    path.parent.mkdir()
    query(path, sql)
    content = path.read_bytes()
    for opener in (open_store, StoreReader.open):
        with pytest.raises(StoreError, match="another program's database") as caught:
            opener(path)
        assert caught.value.fault == "foreign"
    assert path.read_bytes() == content


@OPENERS
def test_invalid_paths_and_folders_are_errors_that_name_them(tmp_path, opener):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder" / "costprobe.db").mkdir(parents=True)
    for folder in ("file", "folder"):
        with pytest.raises(StoreError, match=rf"{folder}/costprobe\.db"):
            opener(tmp_path / folder / "costprobe.db")


def test_file_names_may_contain_special_characters(tmp_path):
    path = tmp_path / "a b?mode=memory#é%20" / "x%2f.db"
    store = open_store(path)
    store.append([point(1)])
    reader = StoreReader.open(path)
    assert [each.time_ns - T0_NS for each in reader.points("device", 0, 2**62)] == [10**9]
    reader.close()
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["x%2f.db"]
