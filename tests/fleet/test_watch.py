"""`costprobe fleet watch` over real databases: what it finds, and what a failing database does."""

import json
import math
import time
from contextlib import closing
from threading import Thread

import pytest
from costprobe.adapters.databases.kinds import READERS
from costprobe.adapters.databases.question import FleetAnswer, GroupValue
from costprobe.adapters.databases.reader import FleetReader
from costprobe.adapters.http.errors import RetryLater
from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import load
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from costprobe.daemon.fleet_watch import FleetWatcher
from costprobe.daemon.systemd import SystemdNotifier
from costprobe.fleet.settings import FleetSection
from costprobe.fleet.watch import FleetWatch
from fakes import watched_fleet
from fakes.cases import check_all
from fakes.command import called
from fakes.documents import checked
from fakes.servers import Scripted
from fakes.watched_fleet import CHECKS, NOW_S, RACK, SILENT


@pytest.mark.parametrize("kind", ["influxql", "victoriametrics"])
def test_planted_faults_are_found_once(kind, section, tmp_path, monkeypatch):
    monkeypatch.setattr("costprobe.ui.cli.fleet_watch.time.time_ns", lambda: NOW_S * NS_PER_S)
    path = tmp_path / "costprobe.toml"

    def once(name, lines):
        path.write_text(f"{section(kind, name, lines)}[fleet.watch]{CHECKS}")
        done = called(path, "fleet", "watch", "--once", "--json")
        return checked("fleet watch", done.stdout)

    found = once("sick", watched_fleet.lines(NOW_S, silent=SILENT))
    assert (found["hosts"], found["silent"], found["is_partial"]) == (12, 7, False)
    lone, rack, gpu = found["found"]
    assert (lone["kind"], lone["severity"]) == ("host_silent", "warning")
    assert lone["labels"] == {"host": "h01"}
    assert (rack["kind"], rack["severity"], rack["value"]) == ("host_silent", "critical", 6)
    assert all(host in rack["text"] for host in RACK)
    assert (gpu["kind"], gpu["cause"]) == ("gpu_outlier", "clock")
    assert gpu["labels"] == dict(zip(("host", "device"), watched_fleet.SICK, strict=True))
    assert "a month" in gpu["text"]
    (budget,) = found["budgets"]
    assert (budget["budget"], budget["verdict"]) == ("gpus", "exceeded")
    # GPUs whose software changed are not compared with each other.
    lines = watched_fleet.lines(NOW_S, rolled_out=watched_fleet.ROLLED_OUT_S)
    (drift,) = once("rollout", lines)["found"]
    common = {"model": "NVIDIA H100", "currency": "EUR"}
    dearer = 100 * watched_fleet.DEARER
    assert (drift["kind"], drift["cause"]) == ("fleet_drift", "driver")
    assert drift["labels"] == {"workload": "ranker", **common}
    assert drift["value"] == pytest.approx(dearer, abs=0.5)
    assert "12 of 12 hosts" in drift["text"]
    (drift,) = once("services", watched_fleet.service_lines())["found"]
    assert (drift["kind"], drift["cause"]) == ("fleet_drift", "unknown")
    assert drift["labels"] == {"workload": "chat", **common}
    assert drift["value"] == pytest.approx(dearer, abs=1e-6)
    assert "8 of 12 hosts" in drift["text"]


class Newest(FleetReader):
    """A database that answers with the newest rows of hosts, and fails as configured.

    Attributes:
        newest: Time of the newest row of each host, UTC in s; math.inf for one that always has a new row.
        problems: Why answers are partial.
        is_away: Whether it does not answer.
    """

    def __init__(self, config):
        super().__init__(config, SystemClock())
        self.newest, self.problems, self.is_away = {}, (), False

    def fetch(self, question, span):
        if self.is_away:
            raise RetryLater("connection refused")
        if question.measurement != "agent":
            return FleetAnswer(())
        end_s = span.end_ns / NS_PER_S
        newest = {host: min(at_s, end_s) for host, at_s in self.newest.items()}
        rows = (GroupValue((host,), at_s, span.end_ns) for host, at_s in newest.items())
        return FleetAnswer(tuple(rows), self.problems)

    def close(self):
        pass


def test_check_without_a_complete_answer_changes_nothing():
    config = FleetSection.model_validate({"kind": "prometheus", "url": "http://127.0.0.1:9"})
    reader = Newest(config)
    fleet = FleetWatch(config, reader, {})

    def found(at_s, silent_s, **changes):
        live = dict.fromkeys("bcd", at_s)
        reader.newest, reader.problems, reader.is_away = {"a": silent_s, **live}, (), False
        for name, value in changes.items():
            setattr(reader, name, value)
        fleet.evaluate(at_s * NS_PER_S)
        return [fault.subject for fault in fleet.faults()]

    silent = ["a"]
    failing = ["a", "silent hosts"]
    assert found(NOW_S, NOW_S - 900) == silent
    # Neither resolved by an answer that lacks the host, nor by a row in a partial one.
    assert found(NOW_S + 300, NOW_S + 300, problems=("truncated",)) == failing
    assert found(NOW_S + 600, 0, is_away=True) == failing
    assert found(NOW_S + 900, 0, newest=dict.fromkeys("bcd", NOW_S + 900)) == silent
    # No host sends rows: the database is at fault.
    at_s = NOW_S + 2400
    assert found(at_s, 0, newest=dict.fromkeys("abcd", at_s - 700)) == failing
    assert "check that the database accepts rows" in fleet.faults()[-1].text
    again = FleetWatch(config, reader, {})
    again.restore(json.loads(json.dumps(fleet.document())))
    assert [fault.subject for fault in again.faults()] == silent
    assert found(NOW_S + 2700, NOW_S + 2700) == []


def test_reload_applies_a_new_file_keeps_incidents_and_rejects_one_with_an_error(
    tmp_path, monkeypatch
):
    reader = Newest(FleetSection.model_validate({"kind": "prometheus", "url": "http://h:9"}))
    reader.newest = {"a": time.time() - 900, **dict.fromkeys("bcd", math.inf)}
    monkeypatch.setitem(READERS, "prometheus", lambda *_: reader)
    path = tmp_path / "fleet.toml"

    def write_config(notifier, more=""):
        path.write_text(
            f'[fleet]\nkind = "prometheus"\nurl = "http://h:9"\n{more}[fleet.watch]\nevery = "1s"\n'
            f'[store]\npath = "{tmp_path}/fleet.db"\n'
            f'[[notifier]]\nname = "hook"\nkind = "webhook"\nurl = "{notifier}"\n'
        )

    def next_notice():
        ends_s = time.monotonic() + 20
        while not hook.requests and time.monotonic() < ends_s:
            time.sleep(0.02)
        _, path, _, body = hook.requests.pop(0)
        alert = json.loads(body)["alert"]
        return path, alert["name"], alert["state"]

    clock = SystemClock()
    with Scripted(lambda *_: (200, {}, b"")) as hook:
        write_config(f"{hook.url}/one")
        service = FleetWatcher(load(path), path, clock, SystemdNotifier("", None, clock))
        thread = Thread(target=service.run, args=(lambda: None,))
        thread.start()
        try:
            assert next_notice() == ("/one", "host-silent", "firing")
            write_config(f"{hook.url}/two", more="silent_after = 1")
            service.request_reload()
            assert next_notice() == ("/one", "broken", "firing")
            write_config(f"{hook.url}/two")
            service.request_reload()
            assert next_notice() == ("/two", "broken", "resolved")
            reader.newest["a"] = math.inf
            assert next_notice() == ("/two", "host-silent", "resolved")
        finally:
            service.request_stop()
            thread.join(20)
    assert not thread.is_alive()
    with closing(StoreReader.open(tmp_path / "fleet.db")) as store:
        (event,) = store.points("event", 0, 2**62)
    assert event.fields["title"].startswith("the new configuration was rejected")
    assert "not valid TOML" in event.fields["detail"]


def test_empty_database_and_missing_settings_are_errors(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "prometheus", lambda config, _clock: Newest(config))
    path = tmp_path / "costprobe.toml"
    fleet = '[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n'
    sink = '[[sink]]\napi = "v1"\nurl = "http://127.0.0.1:9"\ndatabase = "d"\n'
    two = f'{fleet}[store]\npath = "f.db"\n{sink}name = "a"\n{sink}name = "b"\n'
    cases = (
        (fleet, ("--once",), 1, "there is no row of any host"),
        ("", ("--once",), 2, "no [fleet] is configured"),
        (fleet, (), 2, "store.path: the watcher needs a store of its own"),
        (two, (), 2, "the lease is written to one database"),
        (fleet, ("--json",), 2, "--json: add --once"),
    )

    def check(text, words, code, message):
        path.write_text(text)
        done = called(path, "fleet", "watch", *words, code=code)
        assert message in done.stderr

    check_all(check, cases)
