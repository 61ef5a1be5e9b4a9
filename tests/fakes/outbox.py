"""An outbox in memory, with the store's contract."""

from costprobe.core.records import OutboxRow, RowBatch

# Live rows are those after this one.
LIVE_AFTER = 10**6


class MemoryRows:
    """Lines in order, and the number of acknowledged ones."""

    def __init__(self, after):
        self.after = after
        self.lines = []
        self.done_seq = 0

    def add(self, lines):
        for line in lines:
            self.lines.append(OutboxRow(self.after + len(self.lines) + 1, line))

    def batch(self, limit, first):
        rows = self.lines[first : first + limit]
        if not rows:
            return None
        text = "\n".join(row.line for row in rows).encode()
        return RowBatch(self.after + first, rows[-1].seq, len(rows), text)


class MemoryOutbox:
    """Live lines, and an optional backlog."""

    def __init__(self, lines=(), backlog=()):
        self.live, self.backlog = MemoryRows(LIVE_AFTER), MemoryRows(0)
        self.rejected = []
        self.sent = 0
        self.apart = []
        self.live.add(lines)
        self.backlog.add(backlog)

    @property
    def is_drained(self):
        return all(rows.done_seq == len(rows.lines) for rows in (self.live, self.backlog))

    def live_batch(self, limit):
        return self.live.batch(limit, self.live.done_seq)

    def backlog_batch(self, limit, after=0):
        return self.backlog.batch(limit, after or self.backlog.done_seq)

    def rows(self, batch):
        rows = self._of(batch.after)
        return rows.lines[batch.after - rows.after : batch.seq - rows.after]

    def done(self, after, seq, sent, rejected):
        rows = self._of(after)
        assert rows.done_seq <= seq - rows.after <= len(rows.lines)
        assert after <= rows.after + rows.done_seq
        rows.done_seq = seq - rows.after
        self.sent += sent
        self.rejected += rejected

    def move_to_backlog(self, over_points):
        self.apart.append(over_points)

    def _of(self, after):
        return self.live if after >= LIVE_AFTER else self.backlog
