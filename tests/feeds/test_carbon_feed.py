"""The carbon intensity of the daemon: followed, remembered, and said to be stale."""

from decimal import Decimal

import pytest
from fakes.clock import FakeClock

from agent.config_carbon import CarbonConfig
from agent.daemon.accounts import MemoryLedger
from agent.daemon.carbon_feed import STATE, CarbonFeed


class Bench:
    """The daemon's own feed on a file, a fake clock and a ledger in memory."""

    def __init__(self, file):
        self.file, self.clock, self.ledger, self.events = file, FakeClock(), MemoryLedger(), []
        self.feed = self.again()

    def again(self):
        config = CarbonConfig.model_validate({"file": str(self.file), "stale_after": "2h"})
        return CarbonFeed(config, self.ledger, self.clock, self.events.append)

    def write(self, *figures):
        """A file of figures, each so many seconds before now."""
        now_s = self.clock.time_ns() // 10**9
        self.file.write_text("".join(f"{now_s - ago_s},{g}\n" for ago_s, g in figures))
        self.feed.refresh()

    def in_force(self):
        found = self.feed.current().at(self.clock.time_ns())
        return found and found.value


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "carbon.csv")


def test_intensities_are_followed_and_remembered(bench):
    bench.write((3600, 300), (0, 280))
    assert bench.in_force() == 280
    bench.clock.move(1800)
    bench.write((0, 260))
    assert bench.in_force() == 260
    status = bench.feed.status()
    assert (status["g_per_kwh"], status["stale"], status["intensities"]) == ("260", False, 3)
    assert bench.again().current() == bench.feed.current()
    assert bench.events == []


def test_a_file_that_nobody_writes_anew_goes_stale_however_often_it_is_read(bench):
    bench.write((600, 300))
    for _ in range(3):
        bench.clock.move(3600)
        bench.feed.refresh()
    assert bench.feed.status()["stale"]
    # The last known intensity holds, and that it is old is told once.
    assert bench.in_force() == Decimal(300)
    assert [event.title for event in bench.events] == ["carbon intensity is stale"]
    bench.write((0, 310))
    assert not bench.feed.status()["stale"]
    bench.clock.move(3 * 3600)
    bench.feed.refresh()
    assert len(bench.events) == 2


def test_a_figure_without_a_time_is_of_the_moment_it_was_given(bench):
    bench.file.write_text("300")
    for _ in range(4):
        bench.feed.refresh()
        bench.clock.move(3600)
    assert not bench.feed.status()["stale"]
    assert len(bench.feed.current().values) == 1


def test_a_source_that_fails_and_returns_is_told_once_each(bench):
    bench.write((0, 300))
    bench.file.unlink()
    for _ in range(3):
        bench.feed.refresh()
    bench.write((0, 300))
    assert [event.severity for event in bench.events] == ["warning", "info"]
    assert "gives no intensity" in bench.events[0].title
    assert bench.in_force() == 300


def test_what_is_damaged_begins_anew(bench):
    for document in ({"values": [[1, "x"]], "seen_ns": 1}, {"prices": []}, [1], "x"):
        bench.ledger.put_state(STATE, document)
        assert bench.again().current().values == ()


def test_without_a_source_there_is_nothing_to_follow(bench):
    config = CarbonConfig.model_validate({"g_per_kwh": 300})
    for carbon in (None, config):
        feed = CarbonFeed(carbon, bench.ledger, bench.clock, bench.events.append)
        feed.refresh()
        assert (feed.source, feed.status(), feed.current().values) == (None, {}, ())
