"""For any sequence of writes, sends and aggregations, sums and counts equal those of the rows."""

import math
from collections import Counter
from pathlib import Path

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from fakes.sizes import sized
from fakes.store_access import advance, rows_after
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_samples import T0_NS, S, query

HOUR_NS = 3600 * S
# Some minutes on both sides of an hour.
SECONDS = st.builds(
    lambda minute, second: minute * 60 + second,
    st.sampled_from([0, 59, 60, 130]),
    st.integers(0, 59),
)
CUTS = st.sampled_from([-1, 1, 59, 60, 61, 120, 300]).map(lambda minute: T0_NS + minute * 60 * S)
NAMES = ("device", "probe", "event")  # one of each way to be kept


class RollupMachine(RuleBasedStateMachine):
    """The model: every row ever written, and the sink's position."""

    @initialize(with_sink=st.booleans())
    def make(self, with_sink):
        self.folder = memory_folder()
        self.path = Path(self.folder.name) / "costprobe.db"
        self.store = Store.open(self.path, FakeClock())
        self.rows = {}
        self.seq = 0
        self.outbox_ns = -(2**63)
        self.acked_seq = None
        if with_sink:
            self.store.register_sink("s")
            self.acked_seq = 0

    @rule(
        rows=st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.sampled_from(["gpu0", "gpu1"]),
                SECONDS,
                st.floats(0, 1e6),
            ),
            min_size=10,
            max_size=60,
        )
    )
    def append(self, rows):
        points = []
        for measurement, device, second, joules in rows:
            identity = (measurement, device, T0_NS + second * S)
            if identity in self.rows:
                continue  # aggregated rows cannot be replaced
            self.seq += 1
            fields = {"energy_j": joules, "power_max_w": joules}
            points.append(Point(measurement, {"device": device}, fields, identity[2]))
            self.rows[identity] = (self.seq, points[-1])
        self.store.append(points)

    @rule(limit=st.integers(1, 40))
    def send(self, limit):
        if self.acked_seq is not None:
            for row in rows_after(self.store, self.acked_seq, limit):
                self.acked_seq = row.seq
            advance(self.store, "s", self.acked_seq, 0)

    @rule(raw=CUTS, sampled=CUTS, outbox=CUTS, limit=st.integers(1, 60), steps=st.integers(1, 5))
    def retain(self, raw, sampled, outbox, limit, steps):
        self.outbox_ns = max(self.outbox_ns, outbox)
        for _ in range(steps):
            self.store.retain(KeepSince(raw, sampled, -(2**63), outbox), limit)

    @rule(until=CUTS, limit=st.integers(1, 4))
    def settle(self, until, limit):
        self.store.settle(until + 2 * HOUR_NS, limit)

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.path, FakeClock())

    @rule()
    def give_back(self):
        self.store.release_pages(keep=False)

    @invariant()
    def every_row_counts_once_in_its_hour(self):
        reader = StoreReader.open(self.path)
        for measurement in NAMES:
            rows, sums, tops = Counter(), Counter(), Counter()
            for (name, device, time_ns), (_, each) in self.rows.items():
                if name == measurement:
                    own = (device, time_ns // HOUR_NS)
                    rows[own] += 1
                    sums[own] += each.fields["energy_j"]
                    tops[own] = max(tops[own], each.fields["energy_j"])
            found_rows, found_sums, found_tops = Counter(), Counter(), Counter()
            for found in reader.points(measurement, -(2**63), 2**63 - 1):
                own = (found.tags["device"], found.time_ns // HOUR_NS)
                found_rows[own] += getattr(found, "rows", 1)
                # Of probes it is a median, which is not additive.
                found_sums[own] += found.fields["energy_j"]
                found_tops[own] = max(found_tops[own], found.fields["power_max_w"])
            assert found_rows == rows
            for own, total in sums.items():
                if measurement != "probe":
                    assert math.isclose(found_sums[own], total, rel_tol=1e-5, abs_tol=1e-9)
                    assert math.isclose(found_tops[own], tops[own], rel_tol=1e-6, abs_tol=1e-9)
            if measurement == "device":
                (hours,) = reader.hourly_sums("device", ("energy_j",), -(2**63), 2**63 - 1).values()
                hourly, counts = Counter(), Counter()
                for one in hours:
                    for time_ns, joules, end in zip(
                        one.times_ns, one.values, one.ends, strict=True
                    ):
                        own = (one.tags["device"], time_ns // HOUR_NS)
                        hourly[own] += joules
                        counts[own] += end.rows
                assert counts == rows
                assert hourly == pytest.approx(sums, rel=1e-9)
        reader.close()

    @invariant()
    def what_a_sink_has_yet_to_get_is_there_as_it_was_measured(self):
        if self.acked_seq is None:
            return
        waiting = {row.line for row in rows_after(self.store, self.acked_seq, 10_000)}
        for (_, _, time_ns), (seq, each) in self.rows.items():
            if seq > self.acked_seq and time_ns >= self.outbox_ns:
                assert render(each) in waiting

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            assert query(self.path, "PRAGMA integrity_check") == [("ok",)]
            assert query(self.path, "PRAGMA foreign_key_check") == []
            self.folder.cleanup()


RollupMachine.TestCase.settings = settings(
    max_examples=sized(25, 600), stateful_step_count=20, deadline=None
)
test_rolled_up_rows_come_to_what_the_rows_do = RollupMachine.TestCase
