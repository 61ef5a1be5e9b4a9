"""An outbox in memory, with the store's contract."""

from typing import NamedTuple


class OutboxRow(NamedTuple):
    seq: int
    line: str


class MemoryOutbox:
    """Lines in order, a cursor for each sink."""

    def __init__(self, lines=()):
        self.rows = []
        self.cursors = {}
        self.rejected = []
        self.sent = 0
        self.add(lines)

    def add(self, lines):
        for line in lines:
            self.rows.append(OutboxRow(len(self.rows) + 1, line))

    def cursor(self, sink):
        return self.cursors.get(sink, 0)

    def rows_after(self, seq, limit):
        return self.rows[seq : seq + limit]

    def advance(self, sink, acked_seq, sent, rejected):
        assert acked_seq >= self.cursor(sink)
        self.cursors[sink] = acked_seq
        self.sent += sent
        self.rejected += rejected
