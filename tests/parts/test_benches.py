"""Benchmarks stand in for parts of the product: they must fit its parts as these change."""

import importlib
from pathlib import Path

import pytest

from agent.model import Reading

S = 10**9


@pytest.fixture
def bench(monkeypatch):
    """Loads a benchmark's module; their path is left behind clean."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    return importlib.import_module


def test_a_played_fleet_pushes_with_the_products_own_pushers(bench):
    found = bench("fleet_turns").table(50, 0.93)
    assert set(found) == {
        (case, with_turns)
        for case in ("rollout", "outage", "outage, first 10 s")
        for with_turns in (False, True)
    }
    assert all(value > 0 for value in found.values())
    assert found["rollout", True] < found["rollout", False]


def test_ticks_are_taken_as_the_supervisor_gives_them(bench):
    ticks = bench("committing").Ticks()
    for second in range(1, 201):
        ticks.take([Reading(f"gpu{gpu}", 0, second * S, {}) for gpu in range(2)])
    ((late, *_),) = ticks.lateness_ms([(0, 201 * S)])
    assert late == pytest.approx(0, abs=1e-6)
    assert len(ticks.heard_ms(0, 201 * S)) == 400


def test_the_way_of_a_plain_table_takes_one_part_after_the_other(bench, tmp_path):
    assert bench("committing").rate(bench("committing").plain, tmp_path, 60_000, 5000) > 0
