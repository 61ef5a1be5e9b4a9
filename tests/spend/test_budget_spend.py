"""Costs by the hour: sums are preserved and gaps are not filled."""

import random
from contextlib import closing
from itertools import pairwise

import pytest
from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.columns import RowEnd, row_spans
from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.core.records import Point
from costprobe.spend.query import Payer, SpendBook, cost_per_hour, ended_values
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

S = 1_000_000_000
GPU0 = Payer("", "gpu0", "USD")
BEGAN = 490_000 * HOUR_NS


def rows_of(costs):
    """Return raw rows by the UTC ns of their ends."""
    rows = SeriesValues({}, [], [])
    for end_ns in sorted(costs):
        rows.add(end_ns, costs[end_ns])
    return [rows]


def booked(rows, span, usual_s=10, phase_ns=0):
    book = SpendBook(phase_ns)
    book.add_rows(GPU0, rows_of(rows), span, usual_s)
    return book


def test_cost_an_hour_is_divided_by_the_time_that_rows_cover():
    """At 36 an hour; after each start the first row, of 10 s as others, began with it: 3 s before its end."""
    hour = TimeSpan(BEGAN, BEGAN + HOUR_NS)
    first, others = {BEGAN + 3000 * S: 0.03}, {BEGAN + n * S: 0.1 for n in (3010, 3020, 3030)}
    again = {BEGAN + 3500 * S: 0.03, BEGAN + 3510 * S: 0.1}
    found = [
        cost_per_hour(rows_of(rows), 10, hour)
        for rows in (first | others, first | others | again, {})
    ]
    assert found == [pytest.approx(36), pytest.approx(36), None]
    # Its length is unknown, and it is all that there is.
    assert cost_per_hour(rows_of(first), 10, hour) == pytest.approx(10.8)
    # A row that began before the span counts with its part.
    early = {BEGAN - 5 * S: 0.1, BEGAN + 5 * S: 0.1, BEGAN + 15 * S: 0.2}
    assert cost_per_hour(rows_of(early), 10, hour) == pytest.approx(60)


def test_row_across_a_full_hour_is_divided_by_time():
    rows = {BEGAN + minute * 60 * S: 5.0 for minute in (40, 50, 58, 68, 78)}
    book = booked(rows, TimeSpan(BEGAN, BEGAN + 2 * HOUR_NS))
    # 0:30 to 0:58 whole, and 2 of the 10 minutes after it.
    assert book.at(GPU0, 490_000).cost == pytest.approx(15 + 5 * 0.2)
    assert book.at(GPU0, 490_001).cost == pytest.approx(5 * 0.8 + 5)
    assert book.at(GPU0, 490_001).covered_s == pytest.approx(18 * 60)


def test_rows_have_the_length_of_their_distance_and_rolled_up_ones_of_their_rows():
    """Rows of 5 minutes: two hours as they were measured, then with half an hour missing, then raw."""
    found = row_spans([RowEnd(100 * S), RowEnd(900 * S)], usual_s=300)
    assert found == [(-200 * S, 100 * S, 300.0), (600 * S, 900 * S, 300.0)]
    assert row_spans([], 300) == []
    assert row_spans([RowEnd(100 * S, 12, 8 * S)], usual_s=300) == [(4 * S, 100 * S, 96.0)]
    hours = [RowEnd(BEGAN + 55 * 60 * S, 12), RowEnd(BEGAN + HOUR_NS + 55 * 60 * S, 12)]
    gap = RowEnd(BEGAN + 2 * HOUR_NS + 55 * 60 * S, 6)
    raw = [RowEnd(BEGAN + 3 * HOUR_NS + minute * 60 * S) for minute in (0, 5, 10)]
    spans = row_spans([*hours, gap, *raw], usual_s=10)
    assert [span.covered_s for span in spans] == [3600, 3600, 1800, 300, 300, 300]
    assert all(one.end_ns == other.start_ns for one, other in pairwise(spans))


def rolled(ends, period_s):
    """Return rows as a roll-up to that period has them."""
    groups = {}
    for end_ns in ends:
        groups.setdefault(end_ns // (period_s * S), []).append(end_ns)
    return [RowEnd(max(own), len(own)) for _, own in sorted(groups.items())]


def test_coverage_of_a_host_that_is_often_off_survives_any_roll_up():
    """Four days with rows missing, hours off, and rows that were split at a price change."""
    wrong = {}
    for seed in range(12):
        chance, ends, at_ns = random.Random(seed), set(), 0
        step_s = chance.choice([10, 60, 300])
        while at_ns < 4 * 24 * HOUR_NS:
            at_ns += step_s * S
            at_ns += int(chance.uniform(1, 6) * HOUR_NS) * (chance.random() < 0.001)
            at_ns += step_s * S * chance.randint(1, 4) * (chance.random() < 0.01)
            ends |= {at_ns, at_ns + step_s * S // 3} if chance.random() < 0.002 else {at_ns}
        hours, minutes = rolled(ends, 3600), rolled(ends, 60)
        older = hours[: len(hours) // 2]
        mixed = [*older, *(RowEnd(each) for each in sorted(ends) if each > older[-1].end_ns)]
        raw = [RowEnd(each) for each in sorted(ends)]
        covered = [
            sum(span.covered_s for span in row_spans(rows, 10))
            for rows in (raw, minutes, hours, mixed)
        ]
        if covered != pytest.approx([covered[0]] * 4, rel=0.02):
            wrong[seed] = covered
    assert not wrong


@given(
    st.lists(st.tuples(st.integers(1, 200), st.floats(0, 10)), min_size=1, max_size=60),
    st.sampled_from([0, 900 * S, 1800 * S]),
    st.integers(1, 6),
)
def test_any_rows_keep_their_cost_and_are_covered_once(steps, phase_ns, pieces):
    """Rows are booked in batches or at once, with any offset of the hours."""
    rows, at_ns = {}, BEGAN + HOUR_NS
    for minutes, cost in steps:
        at_ns += minutes * 60 * S
        rows[at_ns] = cost
    whole = TimeSpan(BEGAN - 300 * HOUR_NS, at_ns)
    book, ends = SpendBook(phase_ns), sorted({*rows, whole.end_ns})
    cuts = [
        whole.start_ns,
        *sorted(random.Random(pieces).sample(ends[:-1], k=min(pieces, len(ends) - 1))),
    ]
    for start_ns, end_ns in zip(cuts, [*cuts[1:], whole.end_ns], strict=True):
        book.add_rows(GPU0, rows_of(rows), TimeSpan(start_ns, end_ns), 60)
    found = book.between(GPU0, whole)
    assert found.cost == pytest.approx(sum(rows.values()))
    covered_s = sum(span.covered_s for span in row_spans([RowEnd(t) for t in sorted(rows)], 60))
    assert found.covered_s == pytest.approx(covered_s)
    hours = range(book.hour_of(whole.start_ns), book.hour_of(at_ns) + 1)
    assert all(book.at(GPU0, hour).covered_s <= 3600.0 for hour in hours)


def allocated(cost, end_ns):
    return Point(
        "allocation", {"device": "gpu0", "service": "s", "currency": "USD"}, {"cost": cost}, end_ns
    )


def test_row_that_ends_on_the_hour_is_of_the_hour_before(tmp_path):
    """As rows of five minutes, and aggregated to hours, as rows of last month are."""
    store = Store.open(tmp_path / "costprobe.db", FakeClock(BEGAN + 40 * HOUR_NS))
    ends_ns = [BEGAN + minute * 60 * S for minute in range(-600, 1200, 5)]
    # A row costs as much as the number of its hour, since the first one.
    store.append([allocated((end_ns - 1 - BEGAN) // HOUR_NS + 20.0, end_ns) for end_ns in ends_ns])
    spans = [(0, 1), (1, 2), (0, 8)]
    with closing(StoreReader.open(store.path)) as reader:

        def sums():
            found = [TimeSpan(*(BEGAN + hour * HOUR_NS for hour in span)) for span in spans]
            rows = [ended_values(reader, "allocation", ("cost",), span)["cost"] for span in found]
            return [sum(one.values) for (one,) in rows]

        raw = sums()
        kept_ns = BEGAN + 30 * HOUR_NS
        store.retain(KeepSince(kept_ns, kept_ns, 0, kept_ns), 10_000)
        rolled = sums()
    store.close()
    assert raw == [12 * 20, 12 * 21, 12 * sum(range(20, 28))]
    # An aggregated hour has the row at its beginning, and not that at its end.
    assert rolled == [12 * 20 - 1, 12 * 21 - 1, 12 * sum(range(20, 28)) - 8]
