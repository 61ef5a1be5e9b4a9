"""Changes of production: ratios of sums over equal, whole spans, whatever hour they begin at."""

import pytest
from costprobe.core.records import NS_PER_S, Point
from costprobe.unit_costs.change import change_of, compared_spans, ratio_of_sums

HOUR_NS = 3600 * NS_PER_S
DAY_NS = 24 * HOUR_NS
WINDOW_NS = 300 * NS_PER_S
# A midnight.
NOW_NS = 1_772_323_200 * NS_PER_S


def windows(days, scale_of=lambda _: 1.0, step_ns=WINDOW_NS):
    """Windows of a device at 3.6 an hour; 30 requests by day and 1 by night, scaled by the day."""
    for end_ns in range(NOW_NS - days * DAY_NS + step_ns, NOW_NS + 1, step_ns):
        hour = (end_ns - step_ns) // HOUR_NS % 24
        count = (30.0 if 8 <= hour < 20 else 1.0) * scale_of((NOW_NS - end_ns) // DAY_NS)
        fields = {
            "cost_total": 3.6 * step_ns / HOUR_NS,
            "requests": count,
            "window_s": step_ns / NS_PER_S,
            "cost_per_request": 3.6 * step_ns / HOUR_NS / count,
        }
        yield Point("cost", {}, fields, end_ns)


def pct(rows, since_ns, field="cost_per_request", until_ns=NOW_NS):
    found = change_of(rows, field, compared_spans(since_ns, until_ns))
    return None if found is None else found.pct


def test_daily_pattern_is_not_a_change_at_any_hour():
    rows = list(windows(12))
    wrong = {}
    for hours in (1, 6, 13, 24, 31, 48, 77, 120):
        for until_h in (0, 5, 11, 17, 23):
            until_ns = NOW_NS - until_h * HOUR_NS
            for field in ("cost_per_request", "requests"):
                found = pct(rows, until_ns - hours * HOUR_NS, field, until_ns)
                if found != pytest.approx(0.0, abs=1e-9):
                    wrong[hours, until_h, field] = found
    assert not wrong


def test_change_is_computed_from_sums():
    """The last day has twice the requests: half the cost of each, whatever the mean of the windows."""
    rows = list(windows(4, lambda days_ago: 2.0 if days_ago == 0 else 1.0))
    assert pct(rows, NOW_NS - DAY_NS) == pytest.approx(-50.0)
    assert pct(rows, NOW_NS - DAY_NS, "requests") == pytest.approx(100.0)
    # Two days against the two before: 3 of 4 parts of the requests at the same cost.
    assert pct(rows, NOW_NS - 4 * DAY_NS) == pytest.approx((2 / 3 - 1) * 100)
    per_day = 12 * 12 * 30 + 12 * 12
    assert ratio_of_sums(windows(1), "cost_per_request") == pytest.approx(24 * 3.6 / per_day)


def test_windows_without_the_numerator_do_not_count():
    """Energy was known in one of two windows of 10 requests, and an idle one has energy too."""
    rows = [
        Point("cost", {}, {"metered_requests": 10.0, "energy_j": 600.0}, 0),
        Point("cost", {}, {"requests": 10.0}, 1),
        Point("cost", {}, {"metered_requests": 0.0, "energy_j": 400.0}, 2),
    ]
    assert ratio_of_sums(rows, "energy_per_request_j") == 100.0
    assert ratio_of_sums(rows[1:2], "energy_per_request_j") is None


def test_rows_of_older_versions_are_divided_by_what_these_counted():
    """Such rows have energy and an idle part without the counts of windows in which they are known."""
    old = {"requests": 10.0, "energy_j": 600.0, "cost_idle": 1.0, "cost_total": 4.0}
    new = {"requests": 5.0, "metered_requests": 5.0, "energy_j": 150.0, "cost_idle": 3.0}
    rows = [
        Point("cost", {}, old, 0),
        Point("cost", {}, {**new, "cost_total": 4.0, "cost_idle_known": 4.0}, 1),
        Point("cost", {}, {"requests": 7.0, "cost_total": 9.0}, 2),
    ]
    shares = [ratio_of_sums(some, "idle_share") for some in (rows[:1], rows)]
    joules = [ratio_of_sums(some, "energy_per_request_j") for some in (rows[:1], rows)]
    assert (shares, joules) == ([0.25, 0.5], [60.0, 50.0])


def test_spans_with_gaps_are_not_compared():
    """Two and eight hours of the night of the day before are missing."""
    began_ns = NOW_NS - 2 * DAY_NS
    for hours, wanted in ((2, pytest.approx(0.0, abs=10)), (8, None)):
        gap = range(began_ns + 1, began_ns + hours * HOUR_NS + 1)
        rows = [row for row in windows(3) if row.time_ns not in gap]
        assert pct(rows, NOW_NS - DAY_NS) == wanted
    assert pct([], NOW_NS - DAY_NS) is None


def test_spans_are_whole_and_equal():
    table = {
        1: (1, 24),
        24: (24, 24),
        30: (24, 24),
        49: (24, 24),
        24 * 5: (48, 48),
        24 * 13: (24 * 6, 24 * 6),
        24 * 15: (24 * 7, 24 * 7),
        24 * 60: (24 * 28, 24 * 28),
    }
    wrong = {}
    for hours, (length, shift) in table.items():
        before, after = compared_spans(NOW_NS - hours * HOUR_NS, NOW_NS)
        found = (
            (after.end_ns - after.start_ns) / HOUR_NS,
            (after.start_ns - before.start_ns) / HOUR_NS,
        )
        if found != (length, shift) or before.end_ns - before.start_ns != length * HOUR_NS:
            wrong[hours] = found
    assert not wrong
