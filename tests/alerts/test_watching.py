"""Detection and alerting survive an unwritable store and a crash."""

import random
import sqlite3
import time
from contextlib import closing

import pytest
from costprobe.adapters.store.ledger import MemoryLedger, RowLabels, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.alerts.watching import IncidentStore, Watching
from costprobe.configuration import Config
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.incident import Fault
from costprobe.core.line_protocol import render
from costprobe.core.records import REMOVED, Event
from costprobe.core.schema import event_point, make_point
from costprobe.daemon.parts import watched_sections
from fakes.clock import FakeClock
from fakes.services import service
from fakes.store_access import rows_after

LOST = Fault("device_lost", "gpu0", "gpu0 does not answer", "critical", {"device": "gpu0"})
TAGS = {"host": "h"}
HOOK = {"name": "ops", "kind": "webhook", "url": "http://127.0.0.1:1/"}
CONFIG = Config.model_validate(
    {
        "probe": [{"name": "e"}],
        "notifier": [HOOK],
    }
)

HOT = {"kind": "threshold", "measurement": "device", "field": "temp_c", "above": 85}
QUIET = {"alerting": {"defaults": False}}


@pytest.fixture
def clock():
    return FakeClock(time.time_ns())


@pytest.fixture
def store(tmp_path, clock):
    opened = Store.open(tmp_path / "costprobe.db", clock, busy_timeout_ms=50)
    yield opened
    opened.close()


def watching_of(store, clock, ledger=None, config=CONFIG, unmeasured=(), **more):
    sections = watched_sections(config, unmeasured)
    ledger = ledger or MemoryLedger()
    return Watching(sections, store, ledger, clock, TAGS, ClockMonitor(clock), **more)


def states(store):
    return [notice.alert["state"] for notice in store.notices("ops", 10)]


def test_load_curve_that_changed_while_no_daemon_ran_is_an_incident(store, clock):
    def changed(level_pct):
        tags = {**TAGS, "kind": "drift", "metric": "load_curve", "device": "gpu0", "probe": "e"}
        fields = {"title": "slower", "severity": "warning", "level_pct": level_pct}
        store.append([make_point("event", tags, fields, clock.time_ns())])
        clock.move(10)
        watching_of(store, clock).tick([])
        return states(store)

    assert changed(-20.0) == ["firing"]
    clock.move(10)
    watching_of(store, clock).tick([])
    assert states(store) == ["firing"]
    clock.move(3600)
    assert changed(0.0) == ["firing", "resolved"]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_clock_step_does_not_lengthen_durations(store, clock, step_s):
    config = Config.model_validate({**QUIET, "rule": [{**HOT, "name": "hot", "for": "10m"}]})
    watching = watching_of(store, clock, config=config)

    def look(temp_c=90.0, *, move_s=10):
        clock.move(move_s)
        tags = {**TAGS, "device": "gpu0"}
        watching.take([make_point("device", tags, {"temp_c": temp_c}, clock.time_ns())])
        watching.tick([])
        return [alert["state"] for alert in store.state("alerts")["alerts"]]

    assert [look() for _ in range(3)] == [["pending"]] * 3
    clock.step(step_s)
    # The rule requires ten minutes: half of one has passed.
    assert look() == ["pending"]
    clock.step(-step_s)
    # No value has arrived since the step, and none was due.
    watching.tick([])
    assert [look() for _ in range(56)] == [["pending"]] * 56
    assert look() == ["firing"]
    clock.step(step_s)
    watching.tick([])
    assert look() == ["firing"]
    assert look(60.0) == []


def test_listing_has_the_smallest_change_of_each_series_and_the_rule_that_asks_for_less(
    store, clock
):
    rules = [
        {"name": "up", "kind": "drift", "metrics": ["latency"], "at_least": "10%"},
        {"name": "tiny", "kind": "drift", "metrics": ["throughput"], "at_least": "1%"},
        {"name": "other", "kind": "drift", "at_least": "3%", "match": {"device": "gpu7"}},
        {"name": "off", "kind": "drift", "at_least": "2%", "enabled": False},
    ]
    config = Config.model_validate({"probe": [{"name": "e"}], "rule": rules})
    rng = random.Random(1)
    watching = watching_of(store, clock, config=config)
    tags = {**TAGS, "device": "gpu0", "probe": "e"}
    for run in range(400):
        noisy, steady = (rng.lognormvariate(0, sigma) for sigma in (0.3, 0.001))
        fields = {"latency_p50_ms": noisy, "throughput_per_s": 100.0 * steady}
        watching.take([make_point("probe", tags, fields, clock.time_ns())])
        clock.move(300)
        if run in {20, 399}:
            watching.tick([])
            names = ("min_detectable_pct", "rule", "at_least_pct")
            found = {
                series["metric"]: tuple(series[name] for name in names)
                for series in watching.alerts()["detectable"]
            }
            if run == 20:
                assert found["latency"] == (None, "up", 10.0)
    assert found["throughput"] == (2.0, "tiny", 2.0)
    assert 10 < found["latency"][0] < 60


def test_derived_rows_are_stored_and_a_failing_detection_does_not_stop_others(store, clock):
    tags = {**TAGS, "kind": "drift"}
    rows = [make_point("event", tags, {"title": "t"}, clock.time_ns() + i) for i in range(4)]

    def broken(_):
        raise RuntimeError("detection is broken")

    ledger = StoreLedger(store)
    for observer, row in ((lambda _: rows[1:2], rows[0]), (None, rows[2]), (broken, rows[3])):
        ledger.observe(observer)
        ledger.append([row])
    assert [row.line for row in rows_after(store, 0, 10)] == [render(row) for row in rows]


def probe_row(time_ns, latency_ms):
    tags = {**TAGS, "device": "gpu0", "probe": "e", "batch": "8"}
    fields = {"latency_p50_ms": latency_ms, "throughput_per_s": 1000 / latency_ms}
    return make_point("probe", tags, fields, time_ns)


def test_new_process_replays_stored_rows_and_reports_only_new_drifts(store, clock):
    begun_ns = clock.time_ns() - 3 * 86_400 * 10**9
    rows = [probe_row(begun_ns + n * 300 * 10**9, 8 + n % 3 / 20) for n in range(3 * 288)]
    slow = [probe_row(row.time_ns, 1.2 * row.fields["latency_p50_ms"]) for row in rows[576:]]
    store.append([*rows[:576], *slow])
    ledger = MemoryLedger()
    first = watching_of(store, clock, ledger)
    assert ledger.points == []
    first.keep_detectors()
    # The next process crashes after it stored the rows and before it reported them.
    for n in range(6):
        clock.move(300)
        store.append([probe_row(clock.time_ns(), 12.0 + n % 2 / 20)])
    second = watching_of(store, clock, ledger)
    assert {row.tags["metric"] for row in ledger.points} == {"latency", "throughput"}
    assert all(row.tags["kind"] == "drift" for row in ledger.points)
    second.tick([])
    assert states(store) == ["firing"]


def test_detectors_learn_no_row_of_the_future(store, clock):
    """Measured before the wall clock was set back."""
    watching = watching_of(store, clock)
    for ahead_s, is_learned in ((7200, False), (0, True)):
        watching.take([probe_row(clock.time_ns() + ahead_s * 10**9, 8.0)])
        watching.keep_detectors()
        assert (store.state("detector gpu0 e latency") is not None) is is_learned


def test_reload_with_an_unwritable_store_keeps_what_fires(store, clock):
    """The stored state is older: resuming from it would notify of the same incident again."""
    incidents = IncidentStore(store)
    before = watching_of(store, clock, incidents=incidents)
    before.tick([])
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    before.tick([LOST])
    assert [notice.alert.state for notice in before.unstored()] == ["firing"]
    before.close()
    after = watching_of(store, clock, incidents=incidents)
    assert [alert["state"] for alert in after.alerts()["alerts"]] == ["firing"]
    after.tick([LOST])
    assert list(after.unstored()) == []
    other.execute("ROLLBACK")
    other.close()
    clock.move(120)
    after.tick([])
    assert states(store) == ["resolved"]
    kinds = [row.tags["state"] for row in _alert_rows(store)]
    assert kinds == ["firing", "resolved"]


def test_incident_of_a_fault_survives_a_reload_and_fires_once(store, clock):
    """The new parts of a sink find its fault at its next flush, that of the configuration at once."""
    fault = Fault("sink_behind", "influxdb", "sink influxdb accepts no points", "warning")
    refused = Fault("config_refused", "", "the new configuration was rejected")
    rules = [
        {"name": name, "kind": "fault", "faults": [name]} for name in (fault.name, refused.name)
    ]
    sections = {**QUIET, "rule": rules, "notifier": CONFIG.notifier}
    config, incidents = Config.model_validate(sections), IncidentStore(store)
    before = watching_of(store, clock, config=config, incidents=incidents)
    before.tick([fault, refused])
    before.close()
    after = watching_of(store, clock, config=config, incidents=incidents)
    # An evaluation that the reload overtook.
    assert before.tick([]) is False
    clock.move(10)
    after.tick([])
    assert [alert["name"] for alert in after.alerts()["alerts"]] == [fault.name]
    clock.move(10)
    after.tick([fault])
    clock.move(120)
    after.tick([])
    assert states(store) == ["firing", "firing", "resolved", "resolved"]


def test_devices_fault_is_waited_for_after_the_start_of_the_sensors_only(store, clock):
    """A reload keeps them, and with them what they have found."""
    config = Config.model_validate(
        {**QUIET, "rule": [{"name": "lost", "kind": "fault"}], "notifier": CONFIG.notifier}
    )
    sensor_ns = clock.monotonic_ns()
    before = watching_of(store, clock, config=config, sensor_ns=sensor_ns)
    before.tick([LOST])
    before.close()
    clock.move(110)
    after = watching_of(store, clock, config=config, sensor_ns=sensor_ns)
    after.tick([])
    assert states(store) == ["firing"]
    clock.move(10)
    after.tick([])
    assert states(store) == ["firing", "resolved"]


def _alert_rows(store):
    with closing(StoreReader.open(store.path)) as reader:
        return list(reader.points("alert", 0, 2**62))


def test_destroyed_slices_and_probes_on_them_are_not_reported_as_silent(store, clock):
    watching = watching_of(store, clock)
    series = [
        ("device", {"device": "gpu0", "kind": "gpu", "uuid": "GPU-0"}),
        ("device", {"device": "gpu0.mig0", "kind": "mig", "uuid": "MIG-0"}),
        ("device", {"device": "gpu0.mig1", "kind": "mig", "uuid": "MIG-1"}),
        ("probe", {"device": "gpu0.mig0", "probe": "e"}),
        ("probe", {"device": "gpu0.mig1", "probe": "e"}),
    ]
    fields = {"device": {"temp_c": 40.0}, "probe": {"latency_p50_ms": 2.0}}
    for _ in range(4):
        for name, tags in series:
            watching.take([make_point(name, {**TAGS, **tags}, fields[name], clock.time_ns())])
        clock.move(10)
    gone = Event("fault", "info", "gone", clock.time_ns(), device="gpu0.mig1", cause=REMOVED)
    watching.take([event_point(gone, TAGS)])
    watching.tick([])
    watching = watching_of(store, clock)
    watching.tick([])
    clock.move(3600)
    watching.tick([])
    silent = {
        (symptom["rule"], symptom["labels"]["device"])
        for alert in store.state("alerts")["alerts"]
        for symptom in alert["symptoms"]
    }
    assert silent == {
        ("device-silent", "gpu0"),
        ("device-silent", "gpu0.mig0"),
        ("probe-silent", "gpu0.mig0"),
    }


def test_incident_has_the_labels_of_its_service(store, clock):
    teams = {"chat": "assistant", "rank": "search"}
    services = [service(name, labels={"team": team}) for name, team in teams.items()]
    hook = {**HOOK, "match": {"team": "search"}}
    config = Config.model_validate({"service": services, "notifier": [hook]})
    watching = watching_of(store, clock, config=config, labels=RowLabels((), config.service))
    faults = [Fault("service_unread", name, "", "warning", {"service": name}) for name in teams]
    watching.tick(faults)
    clock.move(3600)
    assert watching.tick(faults) is True
    (notice,) = store.notices("ops", 10)
    assert notice.alert["labels"] == {**TAGS, "team": "search"}
    listed = watching.alerts()["alerts"]
    assert sorted(alert["labels"]["team"] for alert in listed) == ["assistant", "search"]
