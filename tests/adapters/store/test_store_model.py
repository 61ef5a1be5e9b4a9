"""For any sequence of operations, the store equals a simple model."""

from dataclasses import replace
from pathlib import Path

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from fakes.sizes import sized
from fakes.store_access import advance, cursor, rows_after
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_samples import T0_NS, S, lines_of, point, query

SECONDS = st.integers(0, 12)
POINTS = st.builds(
    lambda second, device, value: point(second, device, "sweep", power_w=value),
    SECONDS,
    st.sampled_from(["gpu0", "gpu1", "cpu"]),
    st.floats(0, 100),
)
SINKS = st.sampled_from(["a", "b"])


class StoreMachine(RuleBasedStateMachine):
    """The model: rows in order with their seqs, and each sink's cursor and counts."""

    @initialize()
    def make(self):
        self.folder = memory_folder()
        self.path = Path(self.folder.name) / "costprobe.db"
        self.store = Store.open(self.path, FakeClock())
        self.rows = {}
        self.next_seq = 1
        self.cursors = {}
        self.dropped = 0

    @rule(points=st.lists(POINTS, max_size=6))
    def append(self, points):
        self.store.append(points)
        placed = {}
        for each in points:
            device, time_ns = each.tags["device"], each.time_ns
            while (device, time_ns) in {**placed, **self.rows}:
                time_ns += 1  # the other row keeps its time
            placed[device, time_ns] = (self.next_seq, render(replace(each, time_ns=time_ns)))
            self.next_seq += 1
        self.rows |= placed

    @rule(sink=SINKS)
    def register(self, sink):
        self.store.register_sink(sink)
        self.cursors.setdefault(sink, {"seq": 0, "sent": 0, "rejected": 0, "dropped": 0})

    @rule(sink=SINKS)
    def forget(self, sink):
        self.store.forget_sink(sink)
        self.cursors.pop(sink, None)

    @rule(sink=SINKS, limit=st.integers(1, 5), refused=st.integers(0, 1))
    def send(self, sink, limit, refused):
        if sink not in self.cursors:
            return
        own = self.cursors[sink]
        rows = rows_after(self.store, cursor(self.store, sink), limit)
        expected = [row for row in self.rows.values() if row[0] > own["seq"]][:limit]
        assert rows == expected
        if rows:
            rejected = [RejectedLine(row.line, "no") for row in rows[:refused]]
            advance(self.store, sink, rows[-1].seq, len(rows) - refused, rejected)
            own["seq"] = rows[-1].seq
            own["sent"] += len(rows) - refused
            own["rejected"] += refused

    @rule(keep=SECONDS, outbox_keep=SECONDS, limit=st.integers(1, 9))
    def retain(self, keep, outbox_keep, limit):
        keep_ns, outbox_keep_ns = T0_NS + keep * S, T0_NS + outbox_keep * S
        since = KeepSince(keep_ns, keep_ns, keep_ns, outbox_keep_ns)
        steps, removed, dropped = 0, 0, 0
        while True:
            retained = self.store.retain(since, limit)
            steps += 1
            removed, dropped = removed + retained.removed, dropped + retained.dropped
            assert retained.aggregated == 0
            assert retained.removed < 2 * limit
            if retained.is_done:
                break
        acked = min((own["seq"] for own in self.cursors.values()), default=self.next_seq - 1)
        due = {
            identity: seq
            for identity, (seq, _) in self.rows.items()
            if identity[1] < keep_ns and (seq <= acked or identity[1] < outbox_keep_ns)
        }
        assert removed == len(due)
        assert dropped == sum(seq > acked for seq in due.values())
        assert steps <= len(due) // limit + 1
        self.dropped += dropped
        for own in self.cursors.values():
            own["dropped"] += sum(seq > own["seq"] for seq in due.values())
        for identity in due:
            del self.rows[identity]
        if dropped:
            first = min((seq for seq, _ in self.rows.values()), default=self.next_seq)
            for own in self.cursors.values():
                own["seq"] = max(own["seq"], first - 1)

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.path, FakeClock())

    @invariant()
    def the_store_holds_what_the_model_holds(self):
        assert lines_of(self.store) == [line for _, line in self.rows.values()]
        assert {row.seq for row in rows_after(self.store, 0, 999)} == {
            seq for seq, _ in self.rows.values()
        }
        assert self.store.dropped_points() == self.dropped
        sinks = {sink.sink: sink for sink in self.store.sinks()}
        assert sinks.keys() == self.cursors.keys()
        for name, own in self.cursors.items():
            sink = sinks[name]
            waiting = [i[1] for i, (seq, _) in self.rows.items() if seq > own["seq"]]
            assert sink.acked_seq == own["seq"]
            assert sink.backlog == (len(waiting), waiting[0] if waiting else None)
            assert (sink.sent_points, sink.rejected_points, sink.dropped_points) == (
                own["sent"],
                own["rejected"],
                own["dropped"],
            )

    @invariant()
    def a_reader_sees_it_in_the_order_of_time(self):
        reader = StoreReader.open(self.path)
        times_ns = [each.time_ns for each in reader.points("sweep", 0, 2**62)]
        assert times_ns == sorted(time_ns for _, time_ns in self.rows)
        assert sorted(reader.lines(0, 2**62)) == sorted(line for _, line in self.rows.values())
        assert {series.tags["device"] for series in reader.series()} >= {
            device for device, _ in self.rows
        }
        reader.close()

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            assert query(self.path, "PRAGMA integrity_check") == [("ok",)]
            self.folder.cleanup()


StoreMachine.TestCase.settings = settings(
    max_examples=sized(25, 600), stateful_step_count=20, deadline=None
)
test_the_store_agrees_with_its_model = StoreMachine.TestCase
