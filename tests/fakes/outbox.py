"""An outbox in memory, with the store's contract."""

from typing import NamedTuple


class OutboxRow(NamedTuple):
    seq: int
    line: str


class Pack(NamedTuple):
    seq: int
    points: int
    lines: bytes


class MemoryRows:
    """Lines in order, and how far they are done with."""

    def __init__(self, outbox):
        self.outbox = outbox
        self.lines = []
        self.done_seq = 0
        self._behind = {}

    def rows(self, limit):
        return self.lines[self.done_seq : self.done_seq + limit]

    def pack(self, limit):
        return self._pack(self.done_seq, limit)

    def pack_behind(self, seq, limit):
        pack = self._pack(seq, limit)
        if pack is not None:
            self._behind[pack.seq] = seq
        return pack

    def is_next(self, seq):
        return self._behind.get(seq) == self.done_seq

    def _pack(self, seq, limit):
        rows = self.lines[seq : seq + limit]
        text = "\n".join(row.line for row in rows).encode()
        return Pack(rows[-1].seq, len(rows), text) if rows else None

    def done(self, seq, sent, rejected):
        assert seq >= self.done_seq
        self.done_seq = seq
        self.outbox.sent += sent
        self.outbox.rejected += rejected

    def add(self, lines):
        for line in lines:
            self.lines.append(OutboxRow(len(self.lines) + 1, line))


class MemoryOutbox:
    """Live lines, and a backlog where a test gives one."""

    def __init__(self, lines=(), backlog=()):
        self.live, self.backlog = MemoryRows(self), MemoryRows(self)
        self.rejected = []
        self.sent = 0
        self.apart = []
        self.live.add(lines)
        self.backlog.add(backlog)

    @property
    def is_drained(self):
        return all(rows.done_seq == len(rows.lines) for rows in (self.live, self.backlog))

    def set_apart(self, over_points):
        self.apart.append(over_points)
