"""Shares of a change: by the physics of each cause, by the series' own runs, and what is left unknown."""

import random

import pytest
from costprobe.core.records import NS_PER_S, Point
from costprobe.drift.causes import explain_change
from costprobe.drift.runs import DetectionRun

NORMAL = {
    "sm_clock_mhz": 1980.0,
    "temp_max_c": 64.0,
    "throttled_thermal_pct": 0.0,
    "throttled_power_pct": 0.0,
    "contended": False,
}


def runs(count, start=0, slow=1.0, seed=1, fingerprint="f", batch=16, **device):
    """Runs of a level; a callable value gives one value a run, with which `slow` may be called."""
    rng = random.Random(seed + start)
    found = []
    for index in range(count):
        fields = {
            name: value(index) if callable(value) else value
            for name, value in {**NORMAL, **device}.items()
        }
        time_s = 1e-3 * (slow(fields) if callable(slow) else slow) * rng.lognormvariate(0, 0.005)
        found.append(
            DetectionRun(
                (start + index) * 300 * NS_PER_S,
                batch,
                time_s,
                400 * time_s,
                1e-3,
                0.0,
                fingerprint,
                fields,
            )
        )
    return found


def software_event(at, **keys):
    fields = {
        "cause": ", ".join(keys),
        "before": ", ".join(f"{key} old" for key in keys),
        "after": ", ".join(f"{key} new" for key in keys),
    }
    return Point("event", {"kind": "software"}, fields, at * 300 * NS_PER_S)


def explained(before, after, *rows, metric="throughput", sign=1):
    def events(from_ns, until_ns):
        return [row for row in rows if from_ns <= row.time_ns < until_ns]

    return explain_change(before, after, events, metric, sign)


def shares(explanation):
    return {cause.name: round(cause.share.mean, 2) for cause in explanation.causes}


def test_clock_chain_is_one_cause():
    """Thermal throttling lowers the clock: one effect, counted once."""
    after = runs(
        12,
        60,
        1980 / 1600,
        sm_clock_mhz=1600.0,
        throttled_thermal_pct=30.0,
        temp_max_c=88.0,
    )
    found = explained(runs(60), after)
    assert shares(found) == {"cooling": pytest.approx(1, abs=0.05)}
    assert "SM clock 1980 → 1600 MHz" in found.causes[0].text
    assert found.causes[0].coincides is True
    assert found.causes[0].method == "physics"


def test_clock_and_update_at_once_are_ranked_by_share():
    for slow, first in ((1.1, "clock"), (1.6, "software: model")):
        after = runs(12, 60, slow * 1980 / 1700, sm_clock_mhz=1700.0, fingerprint="g")
        found = explained(runs(60), after, software_event(60, model="3f"))
        names = [cause.name for cause in found.causes]
        assert names[0] == first == found.name
        assert sum(cause.share.mean for cause in found.causes) <= 1.001
        _, software = sorted(found.causes, key=lambda cause: cause.name)
        assert software.method == "remainder"


def test_change_that_is_mostly_unexplained_is_unknown_with_its_candidates():
    after = runs(12, 60, 1.4, sm_clock_mhz=1880.0)
    found = explained(runs(60), after)
    assert found.name == "unknown"
    assert [cause.name for cause in found.causes] == ["clock"]
    assert found.explained.mean < 0.3
    assert found.causes[0].share.low <= found.causes[0].share.mean <= found.causes[0].share.high


def test_own_history_replaces_the_physics():
    """A model that waits for the memory slows by half of the clock's fall; an update has the rest."""
    rng = random.Random(5)

    def by_clock(fields):
        return (1980 / fields["sm_clock_mhz"]) ** 0.3

    before = runs(100, 0, by_clock, sm_clock_mhz=lambda _: rng.uniform(1700, 1980))
    after = runs(
        12, 100, lambda f: 1.1 * by_clock(f), sm_clock_mhz=lambda _: 1400.0, fingerprint="g"
    )
    found = explained(before, after, software_event(100, torch="2.13"))
    assert {cause.name: cause.method for cause in found.causes}["clock"] == "history"
    true = 0.3 * 0.273 / (0.3 * 0.273 + 0.095)
    assert shares(found)["clock"] == pytest.approx(true, abs=0.15)


def test_neighbour_is_measured_by_the_runs_without_it():
    rng = random.Random(7)
    after = runs(
        24,
        60,
        lambda fields: 1.15 * (1.3 if fields["contended"] else 1.0),
        contended=lambda _: rng.random() < 0.6,
        fingerprint="g",
    )
    found = explained(runs(60), after, software_event(60, driver="550"))
    by_name = {cause.name: cause for cause in found.causes}
    assert by_name["neighbour"].method == "history"
    assert shares(found)["software: driver"] == pytest.approx(0.47, abs=0.12)


def test_signal_that_changed_hours_before_has_a_small_share():
    hot = runs(12, 60, 1.0, mem_used_pct=97.0)
    before = [*runs(60, mem_used_pct=40.0), *hot]
    after = runs(12, 72, 1.2, mem_used_pct=97.0, fingerprint="g")
    found = explained(before, after, software_event(72, driver="550"))
    assert found.name == "software: driver"
    early = [cause for cause in found.causes if cause.name == "memory pressure"]
    assert all(cause.coincides is False and cause.share.mean < 0.3 for cause in early)


def test_large_change_belongs_to_what_coincides_though_other_effects_vary_more():
    # Effects of annotations vary more than those of software; this one had hours to show none.
    early = Point("event", {"kind": "annotation"}, {"title": "restarted"}, 48 * 300 * NS_PER_S)
    after = runs(12, 60, 5.0, fingerprint="g")
    found = explained(runs(60), after, early, software_event(60, server_version="2"))
    assert found.name == "software: server_version", shares(found)
    assert shares(found)[found.name] > 0.7
    assert found.explained.mean > 0.8


def test_effects_of_batch_and_tokens_follow_their_size():
    smaller = explained(runs(60), runs(12, 60, 1.25, batch=8))
    assert shares(smaller) == {"batch": pytest.approx(1, abs=0.1)}
    request = {"ttft_mean_ms": 40.0, "tpot_mean_ms": 10.0, "tokens_in": 500.0, "tokens_out": 100.0}
    longer = {**request, "tokens_out": 150.0}
    found = explained(runs(60, **request), runs(12, 60, 1540 / 1040, **longer))
    assert shares(found) == {"prompt lengths": pytest.approx(1, abs=0.05)}


def test_energy_of_a_hotter_device_is_leakage():
    before, after = runs(60), runs(12, 60, temp_max_c=80.0)
    for run in after:
        object.__setattr__(run, "energy_j", run.energy_j * 1.035)
    found = explained(before, after, metric="energy", sign=0)
    assert found.name == "temperature"


def test_counteracting_cause_has_a_negative_share():
    """Requests are twice as long, and the new model makes up for most of it."""
    request = {"ttft_mean_ms": 40.0, "tpot_mean_ms": 10.0, "tokens_out": 100.0, "tokens_in": 500.0}
    longer = {**request, "tokens_out": 200.0}
    after = runs(12, 60, 1.2, fingerprint="g", **longer)
    found = explained(runs(60, **request), after, software_event(60, model="3f"))
    assert shares(found)["prompt lengths"] > 2
    assert shares(found)["software: model"] < -1
    assert found.explained.mean == pytest.approx(1, abs=0.1)


def test_throttling_explains_at_most_the_fall_of_the_clock_and_its_own_duration():
    """A driver raises the flag while clock and limit are as before; or no clock is known."""
    driver = software_event(60, driver="560")
    limit = {"power_limit_w": 700.0}
    no_clock = {"sm_clock_mhz": None, **limit}
    hot = {"throttled_thermal_pct": 32.0, "temp_max_c": 80.0}
    wrong = {}
    for name, was, now, slow, rows, expected in (
        ("update", limit, {"throttled_power_pct": 32.0}, 1.12, (driver,), {"software: driver": 1}),
        ("nothing else", limit, {"throttled_power_pct": 32.0}, 1.12, (), {}),
        ("heat", limit, hot, 1.28, (), {}),
        ("small fall", limit, {"throttled_power_pct": 32.0, "sm_clock_mhz": 1940.0}, 1.28, (), {}),
        ("no clock", no_clock, {"throttled_power_pct": 32.0}, 1.15, (), {"power limit": 1}),
        ("shorter", no_clock, {"throttled_power_pct": 5.0}, 1.28, (), {"power limit": 0.2}),
        (
            "a clock that fell further",
            limit,
            {"throttled_power_pct": 5.0, "sm_clock_mhz": 1584.0},
            1.25,
            (),
            {"power limit": 0.25, "clock": 0.75},
        ),
    ):
        after = runs(12, 60, slow, fingerprint="g" if rows else "f", **{**was, **now})
        found = explained(runs(60, **was), after, *rows)
        large = {cause: share for cause, share in shares(found).items() if share > 0.1}
        if large != {cause: pytest.approx(share, abs=0.1) for cause, share in expected.items()}:
            wrong[name] = found
        if max(expected.values(), default=0) < 0.5 and found.name != "unknown":
            wrong[name] = found
        if "-pl" in found.action:
            wrong[name] = found.action
    assert wrong == {}


def test_no_cause_of_a_change_within_the_noise():
    """A driver update without effect, on a quiet and on a noisy host; a step beyond its noise has causes."""
    rng = random.Random(3)
    for noise, slow, is_beyond in ((0.0, 1.004, False), (0.2, 1.02, False), (0.05, 1.2, True)):
        before, after = (
            runs(
                60,
                60 * side,
                lambda _, f=factor, n=noise: f * rng.lognormvariate(0, n),
                fingerprint=print_of,
            )
            for side, factor, print_of in ((0, 1.0, "f"), (1, slow, "g"))
        )
        found = explained(before, after, software_event(60, driver="560"))
        if is_beyond:
            assert (found.name, found.noise) == ("software: driver", None)
        else:
            assert (found.name, found.causes, found.action) == ("unknown", (), "")
            assert found.noise > slow - 1


def test_share_between_0_and_100_percent_is_none():
    """An update and an annotation in the same run cannot be distinguished."""
    note = Point("event", {"kind": "annotation"}, {"title": "deployed"}, 60 * 300 * NS_PER_S)
    after = runs(12, 60, 1.2, fingerprint="g")
    found = explained(runs(60), after, note, software_event(60, driver="560"))
    for cause in found.causes:
        assert cause.share is None or not (cause.share.low < 0.01 and cause.share.high > 0.99)
    assert found.explained.mean > 0.9


def test_lowered_power_limit_has_the_change_only_where_it_throttles():
    before = {"power_limit_w": 700.0, "throttled_thermal_pct": None}
    lower = {**before, "power_limit_w": 450.0}
    slower = {"sm_clock_mhz": 1440.0}
    unknown_clock = {"sm_clock_mhz": None, "throttled_power_pct": None}
    wrong = {}
    for name, was, now, expected in (
        ("throttles", before, {**lower, **slower, "throttled_power_pct": 5.0}, "power limit"),
        ("above the power", before, {**lower, **slower}, "clock"),
        (
            "no counter",
            {**before, "throttled_power_pct": None},
            {**lower, **slower, "throttled_power_pct": None},
            "power limit",
        ),
        ("no clock", {**before, **unknown_clock}, {**lower, **unknown_clock}, "power limit"),
    ):
        found = explained(runs(60, **was), runs(12, 60, 1.3, **now))
        if found.name != expected or shares(found)[expected] < 0.9:
            wrong[name] = found
        if ("nvidia-smi -pl" in found.action) != (expected == "power limit"):
            wrong[name] = found.action
    assert wrong == {}


def test_neighbour_without_effect_leaves_the_change_to_the_update():
    """The run without a neighbour is as slow as those with one."""
    before = runs(60, contended=lambda index: index % 9 == 0)
    after = runs(3, 60, 1.12, contended=lambda index: index != 1, fingerprint="g")
    found = explained(before, after, software_event(60, driver="550"))
    assert found.name == "software: driver"
    assert shares(found).get("neighbour", 0.0) < 0.1


def test_probe_of_a_gpu_has_neighbours_on_its_host_and_on_its_device():
    quiet = {"cpu_wait_pct": lambda index: index % 3 / 10}
    before = runs(60, **quiet)
    # A thread that waits for a fifth of its time launches 1.25 times as long.
    busy_host = runs(6, 60, 1.25, cpu_wait_pct=20.0, contended=True)
    shared_gpu = runs(
        6,
        60,
        lambda fields: 1.25 if fields["contended"] else 1.0,
        contended=lambda index: index != 1,
        **quiet,
    )
    for after in (busy_host, shared_gpu):
        assert explained(before, after).name == "neighbour", after
    assert shares(explained(before, busy_host))["neighbour"] == pytest.approx(1.0, abs=0.1)


def test_neighbour_among_runs_of_another_begins_with_the_change():
    """Flags before the change are noise, and one run of the change is free and fast."""
    before = runs(60, contended=lambda index: index in {20, 41, 59})
    slow = runs(
        6, 60, lambda fields: 1.4 if fields["contended"] else 1.0, contended=lambda i: i != 1
    )
    found = explained(before, slow)
    assert found.name == "neighbour"


def test_outlier_before_the_change_is_not_its_beginning():
    """Two runs before the change one run is slow; the clock falls with the change."""
    before = runs(58)
    outlier = runs(1, 58, 1.3)
    after = runs(4, 60, 1.2, sm_clock_mhz=1640.0)
    found = explained(before, [*outlier, *runs(1, 59), *after])
    assert found.name == "clock"
