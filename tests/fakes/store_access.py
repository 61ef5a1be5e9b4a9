"""Direct access of tests to a store: rows, cursors, acknowledgements."""

from contextlib import closing

from costprobe.adapters.store.cursors import sink_cursor
from costprobe.adapters.store.database import open_reader
from costprobe.core.records import OutboxRow

_ROWS_SQL = """SELECT points.seq, series.key || ' ' || points.fields || ' ' || points.time_ns
    FROM points JOIN series ON series.id = points.series_id
    WHERE points.seq > ? ORDER BY points.seq LIMIT ?"""


def rows_after(store, seq, limit):
    """Up to `limit` rows after `seq`, in the order of commits, as lines."""
    with closing(open_reader(store.path)) as database, database.reading("read") as connection:
        return [OutboxRow(*row) for row in connection.execute(_ROWS_SQL, (seq, limit))]


def cursor(store, sink):
    """The seq of the last row that a sink acknowledged."""
    with closing(open_reader(store.path)) as database, database.reading("read") as connection:
        return sink_cursor(connection, sink)


def advance(store, sink, acked_seq, sent, rejected=()):
    """Record that a sink acknowledged all rows up to `acked_seq`."""
    store.outbox_of(sink).done(0, acked_seq, sent, rejected)
