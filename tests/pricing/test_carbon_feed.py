"""The carbon intensity feed: followed, kept over a restart, and reported as stale."""

from decimal import Decimal

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.pricing.electricity import CarbonConfig
from costprobe.pricing.prices import CARBON_STATE, Feeds
from fakes.clock import FakeClock


class Bench:
    """The daemon's own feed on a file, a fake clock and a ledger in memory."""

    def __init__(self, file):
        self.file, self.clock, self.ledger, self.events = file, FakeClock(), MemoryLedger(), []
        self.feed = self.again()

    def again(self):
        config = CarbonConfig.model_validate({"file": str(self.file), "stale_after": "2h"})
        return Feeds((), config, self.ledger, self.clock, self.events.append).carbon

    def write(self, *figures):
        """Write a file of intensities, each with its age in seconds."""
        now_s = self.clock.time_ns() // 10**9
        self.file.write_text("".join(f"{now_s - ago_s},{g}\n" for ago_s, g in figures))
        self.feed.refresh()

    def in_force(self):
        found = self.feed.current().at(self.clock.time_ns())
        return found and found.value


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "carbon.csv")


def test_intensities_are_followed_and_kept_over_a_restart(bench):
    bench.write((3600, 300), (0, 280))
    assert bench.in_force() == 280
    bench.clock.move(1800)
    bench.write((0, 260))
    assert bench.in_force() == 260
    status = bench.feed.status()
    assert (status["g_per_kwh"], status["stale"], status["intensities"]) == ("260", False, 3)
    assert bench.again().current() == bench.feed.current()
    assert bench.events == []


def test_unchanged_file_becomes_stale(bench):
    bench.write((600, 300))
    for _ in range(3):
        bench.clock.move(3600)
        bench.feed.refresh()
    assert bench.feed.status()["stale"]
    # The last known intensity still applies, and its staleness is reported once.
    assert bench.in_force() == Decimal(300)
    assert [event.title for event in bench.events] == ["carbon intensity is stale"]
    bench.write((0, 310))
    assert not bench.feed.status()["stale"]
    bench.clock.move(3 * 3600)
    bench.feed.refresh()
    assert len(bench.events) == 2


def test_response_is_valid_for_its_newest_hour_at_most(bench):
    for figures, valid_until_s in ((((600, 1), (300, 1)), -300), (((600, 1), (-300, 1)), 0)):
        bench.write(*figures)
        age_ns = bench.feed.current().seen_ns - bench.clock.time_ns()
        assert age_ns // 10**9 == pytest.approx(valid_until_s, abs=1)


def test_value_without_a_time_is_of_the_time_of_reading(bench):
    bench.file.write_text("300")
    for _ in range(4):
        bench.feed.refresh()
        bench.clock.move(3600)
    assert not bench.feed.status()["stale"]
    assert len(bench.feed.current().values) == 1


def test_failure_and_recovery_of_a_source_are_one_event_each(bench):
    bench.write((0, 300))
    bench.file.unlink()
    for _ in range(3):
        bench.feed.refresh()
    bench.write((0, 300))
    assert [event.severity for event in bench.events] == ["warning", "info"]
    assert "returns no intensity" in bench.events[0].title
    assert bench.in_force() == 300


def test_damaged_state_starts_empty(bench):
    for document in ({"values": [[1, "x"]], "seen_ns": 1}, {"prices": []}, [1], "x"):
        bench.ledger.put_state(CARBON_STATE, document)
        assert bench.again().current().values == ()


def test_feed_without_a_source_is_empty(bench):
    config = CarbonConfig.model_validate({"g_per_kwh": 300})
    for carbon in (None, config):
        feeds = Feeds((), carbon, bench.ledger, bench.clock, bench.events.append)
        assert (feeds.carbon, feeds.intensities().values) == (None, ())
