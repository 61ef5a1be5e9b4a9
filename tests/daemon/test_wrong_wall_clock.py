"""A wall clock that is wrong for an hour does not silence detection and rules."""

import random
import shutil
from pathlib import Path

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.adapters.store.write import Store
from costprobe.alerts.watching import Watching
from costprobe.configuration import Config
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.schema import make_point
from costprobe.daemon.parts import watched_sections
from fakes.clock import FakeClock
from fakes.memory import memory_folder

YEAR_S = 365 * 86_400
EVERY_S = 600
DAY = 86_400 // EVERY_S
TAGS = {"host": "h", "device": "gpu0"}
PROBE = {**TAGS, "probe": "e", "batch": "8"}
CONFIG = Config.model_validate(
    {
        "probe": [{"name": "e"}],
        "alerting": {"defaults": False},
        "rule": [
            {"name": "drift", "kind": "drift", "cool_down": "0s"},
            {"name": "silent", "kind": "absence", "measurement": "device"},
            {"name": "hot", "kind": "threshold", "measurement": "device", "field": "temp_c"}
            | {"above": 85},
            {"name": "slow", "kind": "slo", "field": "latency_p50_ms", "within_ms": 10}
            | {"objective": 0.9, "window": "1d"},
            {"name": "money", "kind": "budget", "amount": 2.4, "currency": "EUR", "per": "1d"},
        ],
    }
)


class Host:
    """A probe and a GPU, sampled every ten minutes, with one daemon after another."""

    def __init__(self, folder, time_ns):
        self.clock = FakeClock(time_ns)
        self.store = Store.open(folder / "costprobe.db", self.clock)
        self.rng = random.Random(8)
        self.latency_ms = 8.0
        self.temp_c = 60.0
        self.restart(dies=True)

    def restart(self, *, dies=False):
        if not dies:
            self.watching.close()
        parts = (self.store, MemoryLedger(), self.clock, TAGS, ClockMonitor(self.clock))
        self.watching = Watching(watched_sections(CONFIG), *parts)

    def live(self, periods, *, is_silent=False):
        """Return the names of the alerts that fire after so many periods of ten minutes."""
        for period in range(periods):
            self.clock.move(EVERY_S)
            now_ns = self.clock.time_ns()
            latency_ms = self.latency_ms * self.rng.lognormvariate(0, 0.01)
            of_device = {"temp_c": self.temp_c, "cost": 2.0 / DAY}
            rows = [
                make_point("probe", PROBE, {"latency_p50_ms": latency_ms}, now_ns),
                make_point("device", {**TAGS, "currency": "EUR"}, of_device, now_ns),
            ]
            if not is_silent:
                self.store.append(rows)
                for row in rows:
                    self.watching.take([row])
            self.watching.tick([])
            if period % 12 == 0:
                self.watching.keep_detectors()
        return {
            alert["name"]
            for alert in self.store.state("alerts")["alerts"]
            if alert["state"] == "firing"
        }


@pytest.fixture(scope="module")
def warm():
    """The store of a host after three days, and the time to continue at."""
    with memory_folder() as folder:
        host = Host(Path(folder), FakeClock().time_ns())
        assert host.live(3 * DAY) == set()
        host.watching.close()
        host.store.close()
        yield folder, host.clock.time_ns()


@pytest.fixture
def host(warm):
    warm_folder, time_ns = warm
    with memory_folder() as folder:
        shutil.copytree(warm_folder, folder, dirs_exist_ok=True)
        host = Host(Path(folder), time_ns)
        yield host
        host.store.close()


@pytest.mark.parametrize(
    ("wrong_s", "is_killed", "then"),
    [
        (20 * YEAR_S, True, "stops"),
        (20 * YEAR_S, False, "is killed"),
        (-40 * YEAR_S, True, "is killed"),
        (7200, True, ""),
        (-7200, False, ""),
        (-7200, True, "stops"),
    ],
)
def test_detection_continues_after_a_wrong_wall_clock(host, wrong_s, is_killed, then):
    host.clock.step(wrong_s)
    if is_killed:
        host.restart(dies=True)
    assert host.live(12) == set()
    if then == "stops":
        host.restart()
    host.clock.step(-wrong_s)
    if then == "is killed":
        # The host loses power, and restarts with the right wall clock.
        host.restart(dies=True)
    assert host.live(12) == set()
    host.latency_ms *= 1.2
    assert "drift" in host.live(24)
    host.temp_c = 90.0
    assert "hot" in host.live(3)
    host.temp_c = 60.0
    assert "hot" not in host.live(1)
    assert "silent" in host.live(12, is_silent=True)
    assert "silent" not in host.live(1)


@pytest.mark.parametrize("wrong_s", [20 * YEAR_S, -7200])
def test_rolling_windows_survive_a_wrong_wall_clock(host, wrong_s):
    """Budgets and objectives cover the last day, neither an hour nor twenty years."""
    host.latency_ms = 12.0
    assert "slow" in host.live(DAY // 4)
    host.clock.step(wrong_s)
    assert "slow" in host.live(12)
    host.clock.step(-wrong_s)
    host.latency_ms = 8.0
    assert {"slow", "money"} & host.live(DAY // 2) == {"slow"}
    assert "slow" not in host.live(DAY // 2)
    host.latency_ms = 12.0
    assert "slow" in host.live(DAY // 5)
