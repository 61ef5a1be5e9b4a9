"""A power failure at any moment: any part of the writes since the last sync may be lost.

A disk that keeps its word holds what was synced, and of everything later any part, in sectors of
512 bytes and in any order. Each image here is such a state of the store's two files.

Outcome: the image opens, SQLite's integrity check passes, every row whose commit had returned is
present (the store syncs its log at each commit), and the interrupted commit is complete or absent.
"""

import random
import sqlite3
import tempfile
from collections import Counter
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


def content(store):
    """The bytes of the store's two files."""
    files = (store.path, Path(f"{store.path}-wal"))
    return tuple(file.read_bytes() if file.exists() else b"" for file in files)


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


def found_in(image):
    """Write an image, check its integrity, and return its row numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costprobe.db"
        for suffix, found in zip(("", "-wal"), image, strict=True):
            Path(f"{path}{suffix}").write_bytes(found)
        assert not is_damaged(path)
        with closing(Store.open(path, FakeClock())) as store:
            lines = [row.line.split(" ")[1] for row in rows_after(store, 0, 10**9)]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return sorted(parse_field_set(line)["n"] for line in lines)


@pytest.mark.timeout(TIMEOUT_S)
def test_committed_rows_survive_a_partial_write(tmp_path, figures):
    rng, seen = random.Random(SEED), Counter()
    store, committed = None, 0
    for index in range(IMAGES):
        if store is None or committed > 4000:
            if store is not None:
                store.close()
            store = Store.open(tmp_path / str(index) / "costprobe.db", FakeClock())
            committed = append(store, 0)
        for _ in range(rng.randint(0, 2)):
            committed = append(store, committed)
        database, log = content(store)
        kept = committed
        if rng.random() < 0.3:
            # SQLite syncs the log before a checkpoint and keeps it until the checkpoint ends.
            checkpoint(store.path)
            database = partly(database, content(store)[0], rng)
            seen["checkpoints"] += 1
        else:
            committed = append(store, committed)
            after = content(store)[1]
            # SQLite syncs the header of a restarted log before it appends to it.
            is_anew = after[:WAL_HEADER_BYTES] != log[:WAL_HEADER_BYTES]
            log = partly(log, after, rng, WAL_HEADER_BYTES if is_anew else 0)
        numbers = found_in((database, log))
        assert numbers in (list(range(kept)), list(range(committed)))
        seen["commits"] += len(numbers) > kept
    store.close()
    assert seen["checkpoints"]
    figures(
        "power lost while the store is written",
        images=IMAGES,
        interrupted_checkpoints=seen["checkpoints"],
        interrupted_commits_kept=seen["commits"],
        committed_rows_lost=0,
        damaged_images=0,
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_log_truncated_at_any_byte_keeps_earlier_commits(tmp_path):
    """A disk that acknowledges syncs without performing them."""
    rng = random.Random(SEED)
    with closing(Store.open(tmp_path / "costprobe.db", FakeClock())) as store:
        checkpoint(store.path)
        committed, ends = 0, []
        for _ in range(12):
            committed = append(store, committed)
            ends.append((len(content(store)[1]), committed))
        database, log = content(store)
        for _ in range(sized(25, 2000)):
            length = rng.randrange(len(log) + 1)
            kept = max((rows for end, rows in ends if end <= length), default=0)
            assert len(found_in((database, log[:length]))) >= kept
