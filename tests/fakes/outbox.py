"""An outbox in memory, with the store's contract."""

from costprobe.core.records import OutboxRow, RowBatch


class MemoryRows:
    """Lines in order, and the position of the last acknowledged one."""

    def __init__(self, outbox):
        self.outbox = outbox
        self.lines = []
        self.done_seq = 0

    def batch(self, limit, pending=()):
        return self._batch(pending[-1].seq if pending else self.done_seq, limit)

    def rows(self, batch):
        return self.lines[batch.after : batch.seq]

    def done(self, seq, sent, rejected):
        assert self.done_seq <= seq <= len(self.lines)
        self.done_seq = seq
        self.outbox.sent += sent
        self.outbox.rejected += rejected

    def add(self, lines):
        for line in lines:
            self.lines.append(OutboxRow(len(self.lines) + 1, line))

    def _batch(self, after, limit):
        rows = self.lines[after : after + limit]
        if not rows:
            return None
        text = "\n".join(row.line for row in rows).encode()
        return RowBatch(after, rows[-1].seq, len(rows), text)


class MemoryOutbox:
    """Live lines, and an optional backlog."""

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

    def move_to_backlog(self, over_points):
        self.apart.append(over_points)
