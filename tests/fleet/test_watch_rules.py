"""What `costprobe fleet watch` computes: groups of silent hosts, common drift, and who holds the lease."""

import math

from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.fleet.hosts import ALONE, silent_hosts
from costprobe.fleet.watch import DriftKey, common_drifts, holds_lease

NOW_S = 1_780_012_800
AFTER_S = 600
EVERY_S = 300


def silent(ages_s, before=None, now_s=NOW_S):
    """The silent hosts of those whose newest rows have these ages at NOW_S."""
    newest = {host: (NOW_S - age_s) * NS_PER_S for host, age_s in ages_s.items()}
    return silent_hosts(newest, before or {}, now_s * NS_PER_S, AFTER_S * NS_PER_S)


def test_hosts_that_become_silent_together_are_one_group():
    rack = {f"r{n}": 650 - 10 * n for n in range(12)}
    group = iso((NOW_S - 650) * NS_PER_S)
    cases = {
        "fresh hosts": ({"a": 60, "b": 599}, {}),
        "a few hosts": ({"a": 650, "b": 640, "c": 630}, dict.fromkeys("abc", ALONE)),
        # The whole rack, although the last of it is silent for less than ten minutes.
        "a rack": (rack, dict.fromkeys(rack, group)),
        "a rack, and one before": ({**rack, "a": 7200}, {**dict.fromkeys(rack, group), "a": ALONE}),
        # A minute apart: each three of them are too few.
        "one after the other": (
            {f"h{n}": 700 + 60 * n for n in range(9)},
            dict.fromkeys((f"h{n}" for n in range(9)), ALONE),
        ),
    }
    wrong = [name for name, (ages, wanted) in cases.items() if silent(ages) != wanted]
    assert wrong == []


def test_group_of_a_host_lasts_until_its_next_row():
    rack = {f"r{n}": 650 for n in range(5)}
    first = silent(rack)
    # The others return, and a further host becomes silent at the same time as the rack.
    later = silent({**dict.fromkeys(rack, 0), "r4": 650, "x": 650}, first)
    assert later == {"r4": first["r4"], "x": ALONE}
    assert silent({**rack, "r0": 0}, first) == dict.fromkeys(list(rack)[1:], first["r0"])
    assert silent(dict.fromkeys(rack, 0), first) == {}


KEY = DriftKey("ranker", "H100", "EUR")


def drift_of(shares, at_least=0.05, present=()):
    changes = {KEY: {f"h{n}": math.log1p(share) for n, share in enumerate(shares)}}
    return [
        (len(one.hosts), one.compared, round(one.change, 3))
        for one in common_drifts(changes, at_least, present)
    ]


def test_drift_of_most_hosts_is_one_drift():
    cases = (
        # Changes of the hosts, present drifts, and the hosts, the compared, and the median change.
        ([0.08] * 8, (), [(8, 8, 0.08)]),
        ([0.08] * 5 + [0.0] * 3, (), [(5, 8, 0.08)]),
        ([-0.1] * 4, (), [(4, 4, -0.1)]),
        # Half of the hosts; both directions; too few hosts; too small.
        ([0.08] * 4 + [0.0] * 4, (), []),
        ([0.08] * 4 + [-0.08] * 4, (), []),
        ([0.08] * 2, (), []),
        ([0.04] * 8, (), []),
        # One that has begun ends below half of the least change.
        ([0.04] * 8, (KEY.subject,), [(8, 8, 0.04)]),
        ([0.02] * 8, (KEY.subject,), []),
    )
    wrong = [
        (shares, present)
        for shares, present, wanted in cases
        if drift_of(shares, present=present) != wanted
    ]
    assert wrong == []


def test_lease_has_one_holder():
    a, p = "active", "passive"
    cases = (
        # Name, heartbeats as (name, state, intervals ago), whether it held the lease, whether it holds it.
        ("the first evaluation", "a", [], False, False),
        ("after an interval", "a", [("a", p, 1)], False, True),
        ("the larger of two names", "b", [("a", p, 1), ("b", p, 1)], False, False),
        ("the smaller one, which waited", "a", [("a", p, 1), ("b", p, 0)], False, True),
        ("another one holds it", "a", [("a", p, 1), ("b", a, 1)], False, False),
        ("the active one", "b", [("a", p, 0), ("b", a, 1)], True, True),
        ("the other's has not expired", "a", [("a", p, 1), ("b", a, 2)], False, False),
        ("the other's has expired", "a", [("a", p, 1), ("b", a, 3)], False, True),
        ("restarted within its lease", "b", [("a", p, 1), ("b", a, 2)], False, True),
        ("restarted after a takeover", "a", [("a", a, 4), ("b", a, 1)], True, False),
        ("after an outage of the database", "b", [("a", p, 9), ("b", a, 9)], True, True),
        ("the passive one after an outage", "a", [("a", p, 9), ("b", a, 9)], False, False),
        ("two after a partition", "a", [("a", a, 1), ("b", a, 1)], True, True),
        ("the larger of two after a partition", "b", [("a", a, 1), ("b", a, 1)], True, False),
    )
    wrong = []
    for name, own, rows, held, wanted in cases:
        newest = {
            (watcher, state): (NOW_S - ago * EVERY_S) * NS_PER_S for watcher, state, ago in rows
        }
        holds = holds_lease(own, newest, NOW_S * NS_PER_S, EVERY_S * NS_PER_S, held=held)
        if holds is not wanted:
            wrong.append(name)
    assert wrong == []
