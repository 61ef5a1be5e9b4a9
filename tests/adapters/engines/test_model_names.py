"""Served models: a bounded number of names, which are replaced after a week."""

from costprobe.adapters.engines.scrape import KEPT_S, MAX_NAMES, OTHER, ModelNames
from costprobe.core.records import NS_PER_S
from hypothesis import given
from hypothesis import strategies as st

START_NS = 1_780_000_000 * NS_PER_S
KEPT_NS = int(KEPT_S * NS_PER_S)


class Time:
    def __init__(self):
        self.ns = START_NS

    def __call__(self):
        return self.ns


def test_name_not_seen_for_a_week_is_replaced():
    time = Time()
    names = ModelNames(time)
    for number in range(MAX_NAMES):
        names.name(f"old-{number}")
    time.ns += KEPT_NS // 2
    assert names.name("old-0") == "old-0"
    assert names.name("new") == OTHER
    time.ns += KEPT_NS // 2 + 1
    assert names.name("new") == "new"
    assert names.name("old-0") == "old-0"


def test_names_with_series_are_kept_over_a_restart_and_the_empty_one_does_not_count():
    known = {f"m{number}": START_NS - number for number in range(MAX_NAMES + 5)}
    names = ModelNames(Time(), {"": START_NS, OTHER: START_NS, **known})
    asked = ("stranger", "m0", f"m{MAX_NAMES - 1}", f"m{MAX_NAMES}", "", OTHER)
    expected = [OTHER, "m0", f"m{MAX_NAMES - 1}", OTHER, "", OTHER]
    assert [names.name(name) for name in asked] == expected


def test_unused_name_leaves_its_place_to_a_used_one():
    names = ModelNames(Time(), {"old": START_NS}, names_max=3)
    asked = [("idle", False), ("one", False), ("late", False), ("busy", True), ("one", True)]
    asked += [("idle", False), ("more", True), ("old", False)]
    found = [names.name(name, is_used=is_used) for name, is_used in asked]
    assert found == ["idle", "one", OTHER, "busy", "one", OTHER, OTHER, "old"]


@given(st.lists(st.tuples(st.text(max_size=3), st.floats(0, KEPT_S / 50)), max_size=500))
def test_names_in_a_week_are_bounded(seen):
    time = Time()
    names = ModelNames(time)
    given_at = {}
    for model, after_s in seen:
        time.ns += int(after_s * NS_PER_S)
        given_at[names.name(model)] = time.ns
        current = [name for name, at in given_at.items() if at > time.ns - KEPT_NS]
        assert len(set(current) - {"", OTHER}) <= MAX_NAMES
