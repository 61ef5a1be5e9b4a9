"""Difference in differences over hosts that changed at different times."""

import math
import random
from itertools import accumulate
from statistics import fmean

import pytest
from costprobe.fleet.updates import HostSeries, adoption_effect

BUCKETS = 12


def pattern(bucket):
    return 0.1 * math.sin(bucket)


def unit(host, adopted=None, effect=0.0, **keys):
    """A host with the common pattern, and an effect that grows after its change."""
    values = [
        pattern(bucket) + (effect * (bucket - adopted) if adopted and bucket > adopted else 0.0)
        for bucket in range(BUCKETS)
    ]
    return HostSeries(host, "encoder", values, adopted, **keys)


def test_hosts_are_compared_with_those_that_did_not_change_yet_only():
    # An effect that grows by 0.1 a bucket: 0.1 and 0.2 in a window of two buckets. With hosts that changed
    # earlier as comparison it would seem smaller.
    early = [unit(f"early{n}", 3, 0.1) for n in range(4)]
    late = [unit(f"late{n}", 8, 0.1) for n in range(4)]
    never = [unit(f"never{n}") for n in range(3)]
    found = adoption_effect([*early, *late, *never], 2)
    assert found.mean == pytest.approx(0.15)
    assert (found.hosts, found.controls, found.excluded) == (8, 7, 0)
    before = adoption_effect([*early, *late, *never], 2, 3)
    assert before.mean == pytest.approx(0.0, abs=1e-12)


def test_hosts_that_cannot_be_compared_are_excluded():
    never = [unit(f"never{n}") for n in range(3)]
    changed = unit("changed", 5, 0.1)
    cases = {
        "another change nearby": unit("other", 5, 0.1, others=frozenset({6})),
        "no values after": HostSeries("short", "encoder", [0.0] * 6 + [None] * 6, 5),
        "of another kind": HostSeries("alone", "decoder", [0.0] * BUCKETS, 5),
        "too early": unit("first", 0, 0.1),
    }
    wrong = {
        name: found
        for name, one in cases.items()
        if (found := adoption_effect([changed, one, *never], 2)).excluded != 1 or found.hosts != 1
    }
    assert not wrong
    assert adoption_effect([changed, *never[:2]], 2) is None
    assert adoption_effect(never, 2) is None


def rollout(seed, changed=20, effect=0.03, varies=0.0, drift=0.0):
    """40 hosts of 8 days in buckets of 6 h, with noise that lasts and, by row, a level that drifts."""
    rng, buckets, rows = random.Random(seed), 32, 10
    walks = [list(accumulate(rng.gauss(0, drift) for _ in range(buckets))) for _ in range(rows)]
    starts = {host: rng.randrange(8, 24) for host in rng.sample(range(40), changed)}
    units, effects = [], []
    for host in range(40):
        start, row, away, values = starts.get(host), host % rows, 0.0, []
        own = effect + rng.gauss(0, varies)
        for bucket in range(buckets):
            away = 0.6 * away + rng.gauss(0, 0.008)
            on = own if start is not None and bucket >= start else 0.0
            value = away + on + walks[row][bucket] + pattern(bucket)
            values.append(None if rng.random() < 0.02 else value)
        effects += [own] if start is not None else []
        units.append(HostSeries(f"host{host}", ("encoder", row if drift else 0), values, start))
    return units, fmean(effects)


def test_intervals_contain_the_effect_as_often_as_they_should():
    cases = {
        "half": {},
        "without effect": {"effect": 0.0},
        "few": {"changed": 3, "effect": 0.05},
        "other effects": {"varies": 0.02},
        "drifting rows": {"drift": 0.003},
    }
    covered = {}
    for name, recipe in cases.items():
        truths = [rollout(seed, **recipe) for seed in range(25)]
        found = [(adoption_effect(units, 4), truth) for units, truth in truths]
        covered[name] = sum(abs(one.mean - truth) <= one.half_width for one, truth in found)
    # Of 25 at 95 %: 21 or fewer have a probability of 3 %.
    assert min(covered.values()) >= 22, covered
