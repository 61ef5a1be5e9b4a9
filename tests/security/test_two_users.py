"""Root runs the commands on a store of the service's user, who is hostile."""

import json
import os
import stat
import struct
from pathlib import Path

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import back_up, compact, examine, is_damaged
from costprobe.adapters.store.write import Store
from costprobe.configuration import load
from costprobe.core.records import Point
from costprobe.ui.cli.main import COMMANDS, KEEPS_ROOT
from fakes.clock import FakeClock
from fakes.two_users import OTHER_UID, as_root, give, reason_to_skip, script_as_root, service_host

PAGE_BYTES = 4096
MAGIC = bytes.fromhex("d9d505f920a163d7")
LOCK_BYTE_PAGE = (1 << 30) // PAGE_BYTES + 1
REPORT_USER = '#!/bin/sh\nid -u >> "{notes}"\nexit 1\n'
PROBE = """
[[probe]]
name = "own"
kind = "module"
module = "operators_own:make"
python = "{python}"
every = "1h"
when_busy = "run"
"""


@pytest.fixture(autouse=True)
def _needs_two_users():
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def host():
    with service_host() as folder:
        yield folder


def make_store(folder):
    """A store with one row; return its path."""
    path = folder / "state" / "costprobe.db"
    os.chown(path.parent, 0, 0)
    store = Store.open(path, FakeClock())
    store.append([Point("event", {"host": "a"}, {"title": "x"}, 1)])
    store.close()
    give(path.parent)
    return path


def plant_journal(store, victim):
    """Leave a journal beside a store which names a file as its super-journal.

    Whoever rolls it back deletes the file.
    """
    pages = store.stat().st_size // PAGE_BYTES
    header = MAGIC + struct.pack(">IIIII", 0, 1, pages, 512, PAGE_BYTES)
    name = os.fsencode(victim)
    trailer = struct.pack(">I", LOCK_BYTE_PAGE) + name + struct.pack(">II", len(name), sum(name))
    journal = Path(f"{store}-journal")
    journal.write_bytes(header.ljust(512, b"\0") + trailer + MAGIC)
    give(journal)


def test_journal_beside_the_store_deletes_no_file_of_root(host):
    store, victim = make_store(host), host / "victim"
    victim.write_text("important")
    for words in (["store", "compact"], ["status"]):
        plant_journal(store, victim)
        done = as_root("-c", host / "costprobe.toml", *words)
        assert victim.exists(), (words, done.stderr)
        assert "Traceback" not in done.stderr


def test_links_in_the_state_folder_are_not_followed(host):
    store, outside = make_store(host), host / "outside"
    for name in ("costprobe.db.lock", "costprobe.db-wal", "costprobe.db-shm"):
        link = store.with_name(name)
        link.unlink(missing_ok=True)
        link.symlink_to(outside)
        os.lchown(link, OTHER_UID, OTHER_UID)
        done = as_root("-c", host / "costprobe.toml", "store", "compact")
        assert (done.returncode == 0, outside.exists()) == (False, False), (name, done.stderr)
        assert "Traceback" not in done.stderr
        link.unlink()


def test_every_command_gives_up_the_rights_of_root_before_it_starts(host):
    make_store(host)
    done = script_as_root(
        Path(__file__).with_name("commands_as_root.py"), host / "costprobe.toml", *COMMANDS
    )
    assert done.returncode == 0, done.stderr
    users = json.loads(done.stdout)
    kept = {name for name, uids in users.items() if uids == [0, 0, 0]}
    assert kept == KEEPS_ROOT
    assert all(uids == [OTHER_UID] * 3 for name, uids in users.items() if name not in kept)


def test_operator_code_runs_as_the_user_of_the_store():
    with service_host() as folder:
        python, notes = folder / "python", folder / "state" / "notes"
        python.write_text(REPORT_USER.format(notes=notes))
        python.chmod(0o755)
        config = folder / "costprobe.toml"
        config.write_text(config.read_text() + PROBE.format(python=python))
        for words in (["doctor"], ["probe", "own"], ["debug", "bundle", "-"]):
            done = as_root("-c", config, *words)
            assert notes.exists(), (words, done.stdout, done.stderr)
            assert set(notes.read_text().split()) == {str(OTHER_UID)}, words
            notes.unlink()
        # Root writes it where it likes: the shell of root opened the file.
        assert (done.returncode, done.stdout[:1]) == (0, "\x1f")


def test_storage_refuses_a_store_of_another_user_to_root(host):
    store = make_store(host)
    since = KeepSince(0, 0, 0, 0)
    attempts = {
        "read": lambda: StoreReader.open(store),
        "write": lambda: Store.open(store, FakeClock()),
        "check": lambda: examine(store),
        "back up": lambda: back_up(store, host / "copy.db"),
        "damage": lambda: is_damaged(store),
        "compact": lambda: compact(store, since, FakeClock()),
    }
    accepted = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except StoreError as error:
            if error.fault == "unsafe":
                continue
        accepted.append(name)
    assert accepted == []


def test_journal_of_a_member_of_the_group_is_refused(host):
    store, member = make_store(host), 65533
    journal = store.with_name("costprobe.db-journal")
    journal.touch()
    os.chown(journal, member, member)
    os.chown(store.parent, 0, OTHER_UID)
    store.parent.chmod(0o770)
    os.setegid(OTHER_UID)
    os.seteuid(OTHER_UID)
    try:
        with pytest.raises(StoreError, match=f"-journal belongs to user {member}"):
            Store.open(store, FakeClock())
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_files_written_in_a_folder_of_the_other_user_are_his(host):
    target = host / "state" / "new.toml"
    states = host / "state" / "states"
    states.mkdir()
    give(states)
    done = as_root("config", "init", target, XDG_STATE_HOME=str(states))
    assert done.returncode == 0
    assert target.stat().st_uid == OTHER_UID
    # Its store is his, too: he cannot write that of the service.
    assert load(target).store.path == states / "costprobe" / "costprobe.db"
    shown = as_root("-c", target, "doctor").stdout
    assert f"store: {states}" in shown
    # What only root may write is refused with the reason.
    done = as_root("-c", target, "store", "backup", host / "copy.db")
    assert "note: root's commands run as nobody" in done.stderr
    assert not (host / "copy.db").exists()
    # Through a link to a folder of root he gets no file there.
    link, secret = host / "state" / "link", host / "secret"
    secret.mkdir(mode=0o700)
    link.symlink_to(secret)
    os.lchown(link, OTHER_UID, OTHER_UID)
    assert as_root("config", "init", link / "new.toml").returncode == 2
    assert list(secret.iterdir()) == []
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700
