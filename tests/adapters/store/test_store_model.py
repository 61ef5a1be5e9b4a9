"""For any sequence of writes, sends and retention the store holds what a simple model holds."""

import math
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from fakes.sizes import sized
from fakes.store_access import advance, cursor, rows_after
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_samples import T0_NS, S, lines_of, query

HOUR_NS = 3600 * S
ALWAYS = (-(2**63), 2**63 - 1)
# Some minutes on both sides of an hour.
SECONDS = st.builds(
    lambda minute, second: minute * 60 + second,
    st.sampled_from([0, 59, 60, 130]),
    st.integers(0, 59),
)
CUTS = st.sampled_from([-1, 1, 59, 60, 61, 120, 300]).map(lambda minute: T0_NS + minute * 60 * S)
NAMES = ("device", "probe", "sweep")  # one of each way to be kept
ROWS = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(["gpu0", "gpu1"]), SECONDS, st.floats(0, 1e6)
)
SINKS = st.sampled_from(["a", "b"])


def hour_of(time_ns):
    return time_ns // HOUR_NS * HOUR_NS


class StoreMachine(RuleBasedStateMachine):
    """The model: rows by seq, those that are hours by now, and each sink's cursor and counts."""

    @initialize()
    def make(self):
        self.folder = memory_folder()
        self.path = Path(self.folder.name) / "costprobe.db"
        self.store = Store.open(self.path, FakeClock())
        self.rows = {}
        self.hours = defaultdict(list)
        self.written = set()
        self.next_seq = 1
        self.cursors = {}
        self.dropped = 0

    @rule(rows=st.lists(ROWS, min_size=5, max_size=40))
    def append(self, rows):
        points = []
        for measurement, device, second, joules in rows:
            identity = (measurement, device, T0_NS + second * S)
            if identity not in self.written:  # another one would get the next free ns
                fields = {"energy_j": joules, "power_max_w": joules}
                points.append(Point(measurement, {"device": device}, fields, identity[2]))
                self.written.add(identity)
                self.rows[self.next_seq] = points[-1]
                self.next_seq += 1
        self.store.append(points)

    @rule(sink=SINKS)
    def register(self, sink):
        self.store.register_sink(sink)
        self.cursors.setdefault(sink, {"seq": 0, "sent": 0, "rejected": 0, "dropped": 0})

    @rule(sink=SINKS)
    def forget(self, sink):
        self.store.forget_sink(sink)
        self.cursors.pop(sink, None)

    @rule(sink=SINKS, limit=st.integers(1, 40), refused=st.integers(0, 1))
    def send(self, sink, limit, refused):
        if sink not in self.cursors:
            return
        own = self.cursors[sink]
        rows = rows_after(self.store, cursor(self.store, sink), limit)
        waiting = [(seq, render(row)) for seq, row in self.rows.items() if seq > own["seq"]]
        assert rows == waiting[:limit]
        if rows:
            rejected = [RejectedLine(row.line, "no") for row in rows[:refused]]
            advance(self.store, sink, rows[-1].seq, len(rows) - refused, rejected)
            own["seq"] = rows[-1].seq
            own["sent"] += len(rows) - refused
            own["rejected"] += refused

    @rule(raw=CUTS, sampled=CUTS, hours=CUTS, outbox=CUTS, limit=st.integers(1, 60))
    def retain(self, raw, sampled, hours, outbox, limit):
        aggregated = removed = dropped = 0
        for _ in range(1000):
            step = self.store.retain(KeepSince(raw, sampled, hours, outbox), limit)
            assert step.removed < 2 * limit
            aggregated, removed = aggregated + step.aggregated, removed + step.removed
            dropped += step.dropped
            if step.is_done:
                break
        assert step.is_done
        sampled = min(raw, sampled)
        hours = min(sampled, hours)
        acked = min((own["seq"] for own in self.cursors.values()), default=self.next_seq - 1)
        waiting = {s for s, row in self.rows.items() if s > acked and row.time_ns >= outbox}
        held = {self.hour(self.rows[seq]) for seq in waiting}
        before = {"device": hour_of(raw), "probe": hour_of(sampled)}
        reduced = [
            seq
            for seq, row in self.rows.items()
            if row.time_ns < before.get(row.measurement, ALWAYS[0]) and self.hour(row) not in held
        ]
        deleted = [
            seq
            for seq, row in self.rows.items()
            if row.measurement == "sweep" and row.time_ns < hours and seq not in waiting
        ]
        due = [*reduced, *deleted]
        for seq in reduced:
            self.hours[self.hour(self.rows[seq])].append(self.rows[seq])
        old = [hour for hour in self.hours if hour[2] < hour_of(hours)]
        for hour in old:
            del self.hours[hour]
        for seq in due:
            del self.rows[seq]
        assert (aggregated, removed) == (len(reduced), len(deleted) + len(old))
        assert dropped == sum(seq > acked for seq in due)
        self.dropped += dropped
        for own in self.cursors.values():
            own["dropped"] += sum(seq > own["seq"] for seq in due)
            if dropped:
                own["seq"] = max(own["seq"], min(self.rows, default=self.next_seq) - 1)

    @staticmethod
    def hour(row):
        return row.measurement, row.tags["device"], hour_of(row.time_ns)

    @rule(until=CUTS, limit=st.integers(1, 4))
    def settle(self, until, limit):
        self.store.settle(until + 2 * HOUR_NS, limit)

    @rule()
    def reopen(self):
        self.store.release_pages(keep=False)
        self.store.close()
        self.store = Store.open(self.path, FakeClock())

    @invariant()
    def rows_and_sinks_are_those_of_the_model(self):
        assert lines_of(self.store) == [render(row) for row in self.rows.values()]
        assert [row.seq for row in rows_after(self.store, 0, 9999)] == list(self.rows)
        assert self.store.dropped_points() == self.dropped
        sinks = {sink.sink: sink for sink in self.store.sinks()}
        assert sinks.keys() == self.cursors.keys()
        for name, own in self.cursors.items():
            waiting = [row.time_ns for seq, row in self.rows.items() if seq > own["seq"]]
            sink = sinks[name]
            assert sink.acked_seq == own["seq"]
            assert sink.backlog == (len(waiting), waiting[0] if waiting else None)
            counts = (sink.sent_points, sink.rejected_points, sink.dropped_points)
            assert counts == (own["sent"], own["rejected"], own["dropped"])

    @invariant()
    def every_row_counts_once_in_its_hour(self):
        rows, sums, tops = Counter(), Counter(), Counter()
        for row in (*self.rows.values(), *(row for hour in self.hours.values() for row in hour)):
            rows[self.hour(row)] += 1
            sums[self.hour(row)] += row.fields["energy_j"]
            tops[self.hour(row)] = max(tops[self.hour(row)], row.fields["energy_j"])
        found_rows, found_sums, found_tops = Counter(), Counter(), Counter()
        with closing(StoreReader.open(self.path)) as reader:
            for name in NAMES:
                points = list(reader.points(name, *ALWAYS))
                times_ns = [found.time_ns for found in points]
                assert times_ns == sorted(times_ns)
                for found in points:
                    own = self.hour(found)
                    found_rows[own] += getattr(found, "rows", 1)
                    found_sums[own] += found.fields["energy_j"]
                    found_tops[own] = max(found_tops[own], found.fields["power_max_w"])
            (hours,) = reader.hourly_sums("device", ("energy_j",), *ALWAYS).values()
        assert found_rows == rows
        for own, total in sums.items():
            if own[0] != "probe":  # a median, which is not additive
                assert math.isclose(found_sums[own], total, rel_tol=1e-9, abs_tol=1e-9)
                assert math.isclose(found_tops[own], tops[own], rel_tol=1e-6, abs_tol=1e-9)
        hourly, counts = Counter(), Counter()
        for one in hours:
            for time_ns, joules, end in zip(one.times_ns, one.values, one.ends, strict=True):
                own = ("device", one.tags["device"], hour_of(time_ns))
                hourly[own] += joules
                counts[own] += end.rows
        assert counts == {own: count for own, count in rows.items() if own[0] == "device"}
        device = {own: total for own, total in sums.items() if own[0] == "device"}
        assert hourly == pytest.approx(device, rel=1e-9)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            assert query(self.path, "PRAGMA integrity_check") == [("ok",)]
            assert query(self.path, "PRAGMA foreign_key_check") == []
            self.folder.cleanup()


StoreMachine.TestCase.settings = settings(
    max_examples=sized(30, 800), stateful_step_count=25, deadline=None
)
test_the_store_agrees_with_its_model = StoreMachine.TestCase
