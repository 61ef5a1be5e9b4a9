"""A power failure at any moment: any part of the writes since the last sync may be lost.

A disk that keeps its word holds what was synced, and of everything later any part, in sectors of
512 bytes and in any order. Each image here is such a state of the store's two files.

Outcome: the image opens, SQLite's integrity check passes, every row whose commit had returned is
present (the store syncs its log at each commit), and the interrupted commit is complete or absent.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.store.upkeep import is_damaged
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import parse_field_set
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.sizes import SEED, TIMEOUT_S, sized
from fakes.store_access import rows_after

IMAGES = sized(30, 10_000)
SECTOR_BYTES = 512
WAL_HEADER_BYTES = 32
BATCH_POINTS = 20


class Disk:
    """The store's files, and their possible contents after a power failure."""

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
        path = folder / "costprobe.db"
        path.write_bytes(database)
        Path(f"{path}-wal").write_bytes(log)
        return path


def partly(before, after, rng, first_byte=0):
    """A file's bytes with a random subset of changed sectors written, at a random length."""
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
    """Append rows in one durable commit."""
    store.append(
        [
            Point("device", {"device": f"gpu{n % 5}"}, {"n": n, "title": "x" * (n % 900)}, n)
            for n in range(number, number + BATCH_POINTS)
        ]
    )
    return number + BATCH_POINTS


def checkpoint(path):
    """Run a checkpoint, as SQLite does periodically."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def found_in(path):
    """Check the integrity of an image; return its row numbers."""
    assert not is_damaged(path)
    store = Store.open(path, FakeClock())
    with closing(store):
        numbers = sorted(
            parse_field_set(row.line.split(" ")[1])["n"] for row in rows_after(store, 0, 10**9)
        )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    return numbers


@pytest.mark.timeout(TIMEOUT_S)
def test_committed_rows_survive_a_partial_write(tmp_path, figures):
    rng = random.Random(SEED)
    disk = Disk(tmp_path / "live" / "costprobe.db")
    store = Store.open(disk.path, FakeClock())
    committed, interrupted_commits_kept, interrupted_checkpoints = append(store, 0), 0, 0
    for index in range(IMAGES):
        for _ in range(rng.randint(0, 2)):
            committed = append(store, committed)
        database, log = disk.content()
        kept = committed
        if rng.random() < 0.3:
            # SQLite syncs the log before a checkpoint and keeps it until the checkpoint ends.
            checkpoint(disk.path)
            database = partly(database, disk.content()[0], rng)
            interrupted_checkpoints += 1
        else:
            committed = append(store, committed)
            # SQLite syncs the header of a restarted log before it appends to it.
            is_anew = disk.content()[1][:WAL_HEADER_BYTES] != log[:WAL_HEADER_BYTES]
            log = partly(log, disk.content()[1], rng, WAL_HEADER_BYTES if is_anew else 0)
        image = disk.write(tmp_path / str(index), database, log)
        numbers = found_in(image)
        assert numbers in (list(range(kept)), list(range(committed)))
        interrupted_commits_kept += len(numbers) > kept
        for file in image.parent.iterdir():
            file.unlink()
        if committed > 4000:
            store.close()
            for file in disk.path.parent.iterdir():
                file.unlink()
            store = Store.open(disk.path, FakeClock())
            committed = append(store, 0)
    store.close()
    assert interrupted_checkpoints
    figures(
        "power lost while the store is written",
        images=IMAGES,
        interrupted_checkpoints=interrupted_checkpoints,
        interrupted_commits_kept=interrupted_commits_kept,
        committed_rows_lost=0,
        damaged_images=0,
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_log_truncated_at_any_byte_keeps_earlier_commits(tmp_path):
    """A disk that acknowledges syncs without performing them."""
    rng = random.Random(SEED)
    disk = Disk(tmp_path / "live" / "costprobe.db")
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
