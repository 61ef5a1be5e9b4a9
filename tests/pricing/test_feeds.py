"""Feeds of spot prices and carbon intensities: followed, kept over a restart, reported as stale."""

from decimal import Decimal

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.pricing.electricity import CarbonConfig
from costprobe.pricing.plans import SpotPlan
from costprobe.pricing.prices import CARBON_STATE, Feeds
from fakes.clock import FakeClock

S = 10**9


class Bench:
    """A feed of the daemon on a file, a fake clock and a ledger in memory."""

    def __init__(self, file, kind):
        self.file, self.kind, self.clock, self.ledger, self.events = (
            *(file, kind, FakeClock(), MemoryLedger(), []),
        )
        self.feed = self.again()

    def again(self):
        keys = {"file": str(self.file), "stale_after": "2h"}
        plans, carbon = [], None
        if self.kind == "spot":
            plans = [SpotPlan.model_validate({"plan": "spot", **keys})]
        else:
            carbon = CarbonConfig.model_validate(keys)
        feeds = Feeds(plans, carbon, self.ledger, self.clock, self.events.append)
        return feeds.prices["spot"] if plans else feeds.carbon

    def write(self, *figures):
        """Write a file of figures, each with its age in seconds, and read it."""
        now_s = self.clock.time_ns() // S
        self.file.write_text("".join(f"{now_s - ago_s},{figure}\n" for ago_s, figure in figures))
        self.feed.refresh()

    def in_force(self):
        found = self.feed.current().at(self.clock.time_ns())
        return found and found.value


@pytest.fixture(params=["spot", "carbon"])
def bench(request, tmp_path):
    return Bench(tmp_path / "feed.csv", request.param)


@pytest.fixture
def carbon(tmp_path):
    return Bench(tmp_path / "feed.csv", "carbon")


def test_figures_are_followed_and_kept_over_a_restart(bench):
    bench.write((3600, 300), (0, 280))
    bench.clock.move(1800)
    bench.write((0, 260))
    assert bench.in_force() == 260
    status = bench.feed.status()
    key, count = {"spot": ("price_per_h", "prices"), "carbon": ("g_per_kwh", "intensities")}[
        bench.kind
    ]
    assert (status[key], status["stale"], status[count]) == ("260", False, 3)
    assert bench.again().current() == bench.feed.current()
    assert bench.events == []


def test_failure_staleness_and_recovery_are_one_event_each(bench):
    noun = "price" if bench.kind == "spot" else "intensity"
    bench.write((0, 300))
    bench.file.write_text("free!")
    for _ in range(3):
        bench.feed.refresh()
    # The last known figure still applies.
    assert (bench.in_force(), bench.feed.status()["stale"]) == (300, False)
    assert f"returns no {noun}" in bench.events[0].title
    assert "free!" in bench.events[0].detail
    bench.file.unlink()
    for _ in range(3):
        bench.clock.move(3600)
        bench.feed.refresh()
    assert (bench.in_force(), bench.feed.status()["stale"]) == (300, True)
    bench.write((0, 310))
    assert (bench.in_force(), bench.feed.status()["stale"]) == (310, False)
    assert [event.severity for event in bench.events] == ["warning", "warning", "info"]
    assert bench.events[1].title.endswith(" is stale")


def test_unchanged_file_of_intensities_becomes_stale(carbon):
    """The intensity of a grid applies to its hour: an answer is valid until its newest hour at most."""
    for figures, valid_until_s in ((((600, 1), (300, 1)), -300), (((600, 1), (-300, 1)), 0)):
        carbon.write(*figures)
        age_ns = carbon.feed.current().seen_ns - carbon.clock.time_ns()
        assert age_ns // S == pytest.approx(valid_until_s, abs=1)
    for _ in range(3):
        carbon.clock.move(3600)
        carbon.feed.refresh()
    assert carbon.feed.status()["stale"]
    assert [event.title for event in carbon.events] == ["carbon intensity is stale"]


def test_value_without_a_time_is_of_the_time_of_reading(bench):
    bench.file.write_text("300")
    for _ in range(4):
        bench.feed.refresh()
        bench.clock.move(3600)
    assert not bench.feed.status()["stale"]
    assert len(bench.feed.current().values) == 1


@pytest.mark.parametrize("starts", [False, True])
def test_figures_after_a_backward_clock_step_are_dropped(bench, starts):
    bench.write((0, 2))
    bench.clock.step(6e8)
    bench.write((0, 3))
    assert bench.in_force() == 3
    bench.clock.step(-6e8)
    bench.file.unlink()
    bench.feed = bench.again() if starts else bench.feed
    bench.feed.refresh()
    assert bench.in_force() == 2
    bench.clock.move(7201)
    assert bench.feed.status()["stale"]
    bench.write((0, 4))
    bench.clock.step(6e8)
    assert bench.in_force() == Decimal(4)


def test_damaged_state_starts_empty(bench):
    name = "spot spot" if bench.kind == "spot" else CARBON_STATE
    for document in ({"values": [[1, "x"]], "seen_ns": 1}, {"prices": 3}, [1], {}, "x"):
        bench.ledger.put_state(name, document)
        assert bench.again().current().values == ()
