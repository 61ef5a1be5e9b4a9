"""The instants at which a replay evaluates the rules."""

from itertools import pairwise

from costprobe.alerts.replay import replay
from costprobe.core.records import Point

S = 10**9


class Ticks:
    """An engine and a drift monitor that record the evaluations."""

    def __init__(self):
        self.at_s = []

    def tick(self, time_ns, _):
        self.at_s.append(time_ns // S)
        return self

    notices = ()

    def observe(self, point):
        pass

    def update(self, _):
        return []


def evaluated(rows_s):
    ticks = Ticks()
    replay([Point("probe", {}, {}, at * S) for at in rows_s], ticks, ticks, 10.0)
    return ticks.at_s


def test_rules_are_evaluated_once_per_usual_gap_and_often_in_a_long_one():
    start, every = 1_000_000, 300
    regular = [start + i * every for i in range(100)]
    assert len(evaluated(regular)) < 1.2 * len(regular) + 30
    gap = evaluated([*regular, regular[-1] + 100_000])
    in_gap = [at for at in gap if at > regular[-1]]
    assert all(
        after - before <= max(every, (before - regular[-1]) / 10) + 10
        for before, after in pairwise(in_gap)
    )
    assert in_gap[-1] == regular[-1] + 100_000
