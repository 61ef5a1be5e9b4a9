"""GPUs that deviate from their peers, on a small seeded fleet of the benchmark's generator."""

import importlib
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.fleet.answers import FleetAnswers, fleet_period
from costprobe.fleet.outliers import fleet_outliers
from costprobe.fleet.peers import (
    Deviation,
    PeerValue,
    deviations_of,
    discoveries,
    interval_of,
    outliers_of,
)
from fakes import fleet_gpus
from fakes.fleet_answers import RowsReader

LABELS = ("row", "lot")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    return importlib.import_module


def test_sick_gpus_are_found_with_their_causes_and_healthy_ones_are_not_reported(bench):
    peers = bench("peer_fleet")
    sick = peers.FleetRecipe(hosts=60, sick=0.02, excess=0.06, sick_hosts=1, seed=4)
    gpus, truth = peers.fleet(sick)
    found = outliers_of(gpus, LABELS)
    reported = {(one.host, one.device): one for one in found.outliers}
    assert reported.keys() == truth.keys()
    wrong = {
        truth[key]: one.explanation.name
        for key, one in reported.items()
        if one.explanation.name not in peers.NAMES.get(truth[key], (truth[key],))
    }
    assert not wrong
    assert all(one.time.low <= 0.06 <= one.time.high for one in reported.values() if one.time)
    assert (found.tested, found.untested) == (480, 0)
    assert {level.hosts for _, level in found.levels if level.label == 0} == {6}
    healthy, _ = peers.fleet(replace(sick, sick=0.0, sick_hosts=0))
    assert outliers_of(healthy, LABELS).outliers == ()


def test_gpus_without_enough_peers_are_counted_and_not_tested(bench):
    peers = bench("peer_fleet")
    gpus, _ = peers.fleet(peers.FleetRecipe(hosts=2, gpus=4))
    alone = replace(gpus[0], host="other", peers=("another model",))
    found = outliers_of([*gpus, alone])
    assert (found.tested, found.untested) == (8, 1)


def test_false_share_is_bounded_and_small_deviations_are_not_reported():
    # By hand: of 4 tests, p = 0.001 and 0.02 pass 0.05 k / 4; the third has 1 %.
    def test(score, excess):
        return Deviation("h", "gpu0", math.log1p(excess), math.log1p(excess) / score, 1e6)

    tests = [test(2.326, 0.05), test(3.29, 0.04), test(6.0, 0.01), test(0.5, 0.03)]
    assert discoveries(tests) == [1, 0]
    assert discoveries([]) == []
    excess = interval_of(tests[1], 2, 4)
    # At the level 1 - 0.05 * 2 / 4: 2.2414 standard deviations.
    half = 2.2414 * math.log(1.04) / 3.29
    assert excess.mean == pytest.approx(0.04)
    assert excess.low == pytest.approx(math.exp(math.log(1.04) - half) - 1, rel=1e-3)


def outliers_of_rows(rows):
    start_ns, end_ns = fleet_gpus.START_S * NS_PER_S, fleet_gpus.END_S * NS_PER_S
    answers = FleetAnswers(RowsReader(rows), fleet_period(start_ns, end_ns, end_ns), {})
    return fleet_outliers(answers)


def test_a_gpu_whose_model_changed_in_the_period_is_not_compared():
    replaced_ns = (fleet_gpus.END_S - 3600) * NS_PER_S
    rows = list(fleet_gpus.rows())
    for number, row in enumerate(rows):
        if row.tags["host"] == "h09" and row.time_ns <= replaced_ns:
            if row.measurement == "device":
                rows[number] = replace(row, tags={**row.tags, "model": "NVIDIA A100"})
            if row.measurement == "probe":
                slower = {"throughput_per_s": row.fields["throughput_per_s"] / 2}
                rows[number] = replace(row, fields={**row.fields, **slower})
    found = outliers_of_rows(rows)
    changed = len(fleet_gpus.CHANGED) + 1
    assert {one.host for one in found.outliers} == {fleet_gpus.SICK[0], fleet_gpus.SHARED[0]}
    assert found.updated == changed * fleet_gpus.GPUS
    assert found.tested == (fleet_gpus.HOSTS - changed) * fleet_gpus.GPUS


def test_a_host_of_two_gpus_is_no_outlier_for_one_of_them():
    found = outliers_of_rows(row for row in fleet_gpus.rows() if row.tags["device"] != "gpu2")
    assert {(one.host, one.device) for one in found.outliers} == {
        fleet_gpus.SICK,
        fleet_gpus.SHARED,
    }


def test_hosts_are_not_compared_with_fewer_than_seven_others():
    # Their spread cannot be estimated: every second such fleet would have an outlier.
    rng = random.Random(3)
    for hosts in (2, 4, 7):
        values = []
        for host in range(hosts):
            level = rng.gauss(0, 0.02)
            values += [
                PeerValue(f"h{host}", f"gpu{slot}", level + rng.gauss(0, 0.005))
                for slot in range(8)
            ]
        found, _ = deviations_of(values)
        assert len(found) == 8 * hosts
        assert all(one.device for one in found)
