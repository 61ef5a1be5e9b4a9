"""Two watchers of one fleet on a real InfluxDB: one of them notifies, once, whatever fails."""

import json
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from costprobe.configuration import parse
from costprobe.core.incident import Silence
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.daemon.fleet_watch import FleetWatcher
from costprobe.daemon.systemd import SystemdNotifier
from fakes import watched_fleet
from fakes.clock import FakeClock
from fakes.servers import InfluxDB, Scripted, running
from fakes.watched_fleet import CHECKS, NOW_S, RACK, SILENT, write

EVERY_S = 300


class Watched:
    """A fleet in a real InfluxDB, watched by several watchers on one clock."""

    def __init__(self, folder, server, hook):
        self.folder, self.server, self.hook = folder, server, hook
        self.clock = FakeClock(NOW_S * NS_PER_S)
        self.live = [watched_fleet.host_of(number) for number in range(6) if number != 1]
        self.seen = 0

    @contextmanager
    def watcher(self, name):
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        address = f'url = "{self.server.url}"\ndatabase = "watched"\n'
        text = f"""
[host]
name = "{name}"
labels = {{ site = "eu" }}
[fleet]
kind = "influxql"
{address}
[fleet.watch]
{CHECKS}
[[sink]]
api = "v1"
{address}
[store]
path = "{folder}/fleet.db"
[[notifier]]
name = "hook"
kind = "webhook"
url = "{self.hook.url}/{name}"
"""
        path = folder / "fleet.toml"
        config = parse(text, path)
        watcher = FleetWatcher(config, path, self.clock, SystemdNotifier("", None, self.clock))
        try:
            yield watcher
        finally:
            watcher.close()

    def evaluate(self, *watchers):
        now_s = self.clock.time_ns() // NS_PER_S
        rows = (watched_fleet.agent_row({"host": host}, now_s) for host in self.live)
        with suppress(OSError):  # while it is stopped
            write(self.server, [render(row).encode() for row in rows])
        for watcher in watchers:
            watcher.evaluate()
        self.clock.move(EVERY_S)

    def notices(self, number):
        """The next notices, as (watcher, state, rule, host); all have the labels of the watcher."""
        ends_s = time.monotonic() + 20
        while len(self.hook.requests) < self.seen + number and time.monotonic() < ends_s:
            time.sleep(0.005)
        new = self.hook.requests[self.seen :]
        self.seen = len(self.hook.requests)
        alerts = [(path.strip("/"), json.loads(body)["alert"]) for _, path, _, body in new]
        assert all(alert["labels"]["site"] == "eu" for _, alert in alerts)
        return sorted(
            (name, alert["state"], alert["name"], alert["labels"].get("host", ""))
            for name, alert in alerts
        )


@pytest.fixture
def watched(tmp_path):
    with ExitStack() as stack:
        server = stack.enter_context(running(InfluxDB, tmp_path / "influxdb", "influxd"))
        server.query('CREATE DATABASE "watched"')
        write(server, watched_fleet.lines(NOW_S, silent=SILENT))
        hook = stack.enter_context(Scripted(lambda *_: (200, {}, b"")))
        yield Watched(tmp_path, server, hook)


def test_one_of_two_watchers_notifies_once(watched):
    first = [("host-silent", ""), ("host-silent", "h01"), ("gpu-outlier", "h03")]
    with watched.watcher("b") as b:
        with watched.watcher("a") as a:
            silent_ns = NOW_S * NS_PER_S, (NOW_S + 86_400) * NS_PER_S
            a.watching.add_silence(Silence("s", {"rule": "budget"}, *silent_ns, "known", "me"))
            for _ in range(5):
                watched.evaluate(b, a)
            assert watched.notices(3) == sorted(("a", "firing", *one) for one in first)
            listed = a.watching.alerts()
            (budget,) = [one["id"] for one in listed["alerts"] if one["name"] == "budget"]
            assert listed["silenced"] == [budget]
        # The active one is gone, and another host becomes silent before its lease expires.
        watched.live.remove("h02")
        for _ in range(3):
            watched.evaluate(b)
        assert watched.notices(1) == [("b", "firing", "host-silent", "h02")]
        with watched.watcher("a") as a:
            watched.evaluate(b, a)
            # Away for longer than a lease lasts: the active watcher reports it, and stays active.
            watched.server.stop()
            for _ in range(4):
                watched.evaluate(b, a)
            assert watched.notices(1) == [("b", "firing", "failing", "")]
            watched.server.start()
            watched.live += ["h01", "h02"]
            watched.evaluate(b, a)
            assert watched.notices(3) == [
                ("b", "resolved", "failing", ""),
                ("b", "resolved", "host-silent", "h01"),
                ("b", "resolved", "host-silent", "h02"),
            ]
            watched.evaluate(b, a)
    # A restarted watcher continues; nothing that still fires is sent again.
    with watched.watcher("b") as b:
        watched.live += RACK
        watched.evaluate(b)
        assert watched.notices(1) == [("b", "resolved", "host-silent", "")]
        firing = [alert["name"] for alert in b.watching.alerts()["alerts"]]
        assert sorted(firing) == ["budget", "gpu-outlier"]
