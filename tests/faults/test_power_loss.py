"""Power that fails at any moment: what of the writes since the last sync arrived is chance.

A disk that keeps its word holds what was synced, and of everything later any part, in sectors of
512 bytes and in any order. Each image here is such a state of the store's two files.

Outcome: the image opens, SQLite finds it whole, every row whose commit had returned is there (the
store syncs its log at each commit), and the commit that was cut is there as a whole or not at all.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from fakes.sizes import SEED, TIMEOUT_S, sized

from agent.lineprotocol import parse_field_set
from agent.model import Point
from agent.storage.health import is_damaged
from agent.storage.writer import Store

IMAGES = sized(60, 10_000)
SECTOR_BYTES = 512
WAL_HEADER_BYTES = 32
BATCH_POINTS = 20


class Disk:
    """The store's files, and what a power cut may leave of them."""

    def __init__(self, path):
        self.path = path

    def content(self):
        return tuple(
            Path(f"{self.path}{suffix}").read_bytes()
            if Path(f"{self.path}{suffix}").exists()
            else b""
            for suffix in ("", "-wal")
        )

    @staticmethod
    def write(folder, database, log):
        folder.mkdir()
        path = folder / "infercost.db"
        path.write_bytes(database)
        Path(f"{path}-wal").write_bytes(log)
        return path


def partly(before, after, rng, first_byte=0):
    """The bytes of a file of which any of the changed sectors have arrived, and any length."""
    share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    length = rng.choice((len(before), len(after), rng.randint(*sorted((len(before), len(after))))))
    image = bytearray(before.ljust(length, b"\0")[:length])
    image[:first_byte] = after[:first_byte]
    for start in range(first_byte // SECTOR_BYTES * SECTOR_BYTES, length, SECTOR_BYTES):
        if rng.random() < share:
            begin = max(start, first_byte)
            image[begin : start + SECTOR_BYTES] = after[begin : start + SECTOR_BYTES]
    return bytes(image[:length])


def append(store, number):
    """A commit of its own, which returns once it is on the disk."""
    store.append(
        [
            Point("device", {"device": f"gpu{n % 5}"}, {"n": n, "title": "x" * (n % 900)}, n)
            for n in range(number, number + BATCH_POINTS)
        ]
    )
    return number + BATCH_POINTS


def checkpoint(path):
    """Moves the log into the file, as SQLite does by itself from time to time."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def found_in(path):
    """The numbers that an image holds, once it was found whole."""
    assert not is_damaged(path)
    store = Store.open(path, FakeClock())
    with closing(store):
        numbers = sorted(
            parse_field_set(row.line.split(" ")[1])["n"] for row in store.rows_after(0, 10**9)
        )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    return numbers


@pytest.mark.timeout(TIMEOUT_S)
def test_whatever_arrived_of_a_cut_write_the_committed_rows_are_there(tmp_path, figures):
    rng = random.Random(SEED)
    disk = Disk(tmp_path / "live" / "infercost.db")
    store = Store.open(disk.path, FakeClock())
    committed, cut_commits_kept, checkpoints_cut = append(store, 0), 0, 0
    for index in range(IMAGES):
        for _ in range(rng.randint(0, 2)):
            committed = append(store, committed)
        database, log = disk.content()
        kept = committed
        if rng.random() < 0.3:
            # The log is synced before a checkpoint begins, and is left until it has ended.
            checkpoint(disk.path)
            database = partly(database, disk.content()[0], rng)
            checkpoints_cut += 1
        else:
            committed = append(store, committed)
            # A log that begins anew has its header synced before anything follows it.
            is_anew = disk.content()[1][:WAL_HEADER_BYTES] != log[:WAL_HEADER_BYTES]
            log = partly(log, disk.content()[1], rng, WAL_HEADER_BYTES if is_anew else 0)
        image = disk.write(tmp_path / str(index), database, log)
        numbers = found_in(image)
        assert numbers in (list(range(kept)), list(range(committed)))
        cut_commits_kept += len(numbers) > kept
        for file in image.parent.iterdir():
            file.unlink()
        if committed > 4000:
            store.close()
            for file in disk.path.parent.iterdir():
                file.unlink()
            store = Store.open(disk.path, FakeClock())
            committed = append(store, 0)
    store.close()
    assert checkpoints_cut
    figures(
        "power lost while the store is written",
        images=IMAGES,
        checkpoints_cut=checkpoints_cut,
        cut_commits_kept_whole=cut_commits_kept,
        committed_rows_lost=0,
        images_not_whole=0,
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_a_log_cut_at_any_byte_leaves_the_commits_before_the_cut(tmp_path):
    """As a disk does that does not keep its word about what is synced."""
    rng = random.Random(SEED)
    disk = Disk(tmp_path / "live" / "infercost.db")
    store = Store.open(disk.path, FakeClock())
    checkpoint(disk.path)
    committed, ends = 0, []
    for _ in range(12):
        committed = append(store, committed)
        ends.append((len(disk.content()[1]), committed))
    database, log = disk.content()
    for index in range(sized(25, 2000)):
        length = rng.randrange(len(log) + 1)
        image = disk.write(tmp_path / str(index), database, log[:length])
        kept = max((rows for end, rows in ends if end <= length), default=0)
        assert len(found_in(image)) >= kept
        for file in image.parent.iterdir():
            file.unlink()
    store.close()
