"""Who may use a store: modes and kinds of its files, and the lock of the one daemon."""

import os
import threading
from pathlib import Path

import pytest
from costprobe.adapters.host.files import open_own
from costprobe.adapters.probe_child.runner import device_lock
from costprobe.adapters.store.database import StoreError, StoreLock
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import compact
from costprobe.adapters.store.write import Store
from costprobe.daemon.main import open_store
from fakes.clock import FakeClock


def made(path):
    Store.open(path, FakeClock()).close()
    return path


def mode_of(path):
    return path.stat().st_mode & 0o7777


def test_folder_keeps_its_mode_and_files_lose_the_rights_of_others(tmp_path):
    store = made(tmp_path / "new" / "costprobe.db")
    assert (mode_of(store.parent), mode_of(store)) == (0o700, 0o640)
    # The group reads the store only in a folder that owner and group alone may enter.
    expected = {0o700: 0o640, 0o750: 0o640, 0o755: 0o600, 0o770: 0o600, 0o2775: 0o600}
    for mode, of_file in expected.items():
        store.chmod(0o666)
        store.parent.chmod(mode)
        made(store)
        assert (mode_of(store.parent), mode_of(store)) == (mode, of_file)
    store.parent.chmod(0o777)
    with pytest.raises(StoreError, match="everyone may write in") as refused:
        made(store)
    assert (refused.value.fault, mode_of(store.parent)) == ("unsafe", 0o777)


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about folders of root")
def test_folder_of_root_that_another_group_may_write_is_refused(tmp_path):
    store = tmp_path / "costprobe.db"
    refused = {0o777: "everyone may write in", 0o775: "group 65534 may write in"}
    os.chown(tmp_path, 0, 65534)
    for mode, words in refused.items():
        tmp_path.chmod(mode)
        with pytest.raises(StoreError, match=words):
            made(store)
        assert mode_of(tmp_path) == mode


def test_links_and_other_files_in_the_place_of_a_store_are_refused(tmp_path):
    other = made(tmp_path / "other" / "costprobe.db")
    opened = []
    for suffix in ("", "-wal", "-shm", "-journal"):
        for kind in ("symbolic", "dangling", "hard", "fifo", "folder"):
            store = tmp_path / f"{kind}{suffix}" / "costprobe.db"
            store.parent.mkdir()
            if suffix:
                made(store)
            file = Path(f"{store}{suffix}")
            file.unlink(missing_ok=True)
            {
                "symbolic": lambda file=file: file.symlink_to(other),
                "dangling": lambda file=file: file.symlink_to(tmp_path / "nothing"),
                "hard": lambda file=file: os.link(other, file),
                "fifo": lambda file=file: os.mkfifo(file),
                "folder": lambda file=file: file.mkdir(),
            }[kind]()
            for use in (
                lambda store=store: open_store(store, FakeClock()),
                lambda store=store: StoreReader.open(store),
            ):
                try:
                    use()
                    opened.append(file)
                except StoreError as error:
                    if error.fault not in {"unsafe", "missing"}:
                        opened.append((file, str(error)))
    assert opened == []
    assert not (tmp_path / "nothing").exists()


def test_store_that_everyone_may_write_is_not_read(tmp_path):
    store = made(tmp_path / "costprobe.db")
    store.chmod(0o666)
    with pytest.raises(StoreError, match=r"everyone may write costprobe\.db"):
        StoreReader.open(store)


def test_one_daemon_at_a_time_uses_a_store(tmp_path):
    path = tmp_path / "costprobe.db"
    first, _ = open_store(path, FakeClock())
    with pytest.raises(StoreError, match=f"process {os.getpid()}, is using it") as refused:
        StoreLock(path, timeout_s=0)
    assert refused.value.fault == "in_use"
    with pytest.raises(StoreError, match="is using it"):
        compact(path, KeepSince(0, 0, 0, 0), FakeClock())
    StoreReader.open(path).close()
    first.close()
    second, _ = open_store(path, FakeClock())
    second.close()


def test_daemon_that_ends_hands_the_store_over(tmp_path):
    path = tmp_path / "costprobe.db"
    first = StoreLock(path)
    ending = threading.Timer(0.1, first.release)
    ending.start()
    StoreLock(path, timeout_s=60).release()
    ending.join()


def test_damaged_store_in_use_is_not_quarantined(tmp_path):
    path = tmp_path / "costprobe.db"
    path.write_bytes(b"SQLite format 3\0" + b"damage" * 1000)
    lock = StoreLock(path)
    with pytest.raises(StoreError, match="is using it"):
        open_store(path, FakeClock())
    lock.release()
    assert [file.name for file in tmp_path.glob("*damaged*")] == []


def test_lock_files_are_own_regular_files(tmp_path):
    taken = []
    for kind, make in {
        "symbolic link": lambda path: path.symlink_to(tmp_path / "nothing"),
        "hard link": lambda path: os.link(tmp_path / "other", path),
        "fifo": os.mkfifo,
        "folder": Path.mkdir,
        "for all": lambda path: (path.touch(), path.chmod(0o666)),
    }.items():
        (tmp_path / "other").touch()
        path = tmp_path / f"{kind}.lock"
        make(path)
        try:
            os.close(open_own(path))
            taken.append(kind)
        except OSError:
            pass
    assert taken == []
    assert not (tmp_path / "nothing").exists()


def test_device_lock_creates_nothing_through_a_link(tmp_path, caplog):
    (tmp_path / "cpu.lock").symlink_to(tmp_path / "nothing")
    with device_lock(tmp_path, "cpu", threading.Event(), 1) as is_held:
        assert is_held
    assert not (tmp_path / "nothing").exists()
    assert "is a symbolic link" in caplog.text
