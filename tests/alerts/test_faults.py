"""Failures in a status document become faults that state the fix."""

from pathlib import Path

from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.faults import GIB, Disk, disk_of, present_faults
from costprobe.alerts.rules.faults import FaultRule, FaultRuleConfig
from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.settings import AlertingConfig

ROOM = Disk(100 * GIB, 1000 * GIB)
REJECTED = {"points": 120, "last_ns": 1, "reason": "type conflict"}
LOST = {
    "sinks": {"eu": {"retry_in_s": None, "rejections": REJECTED}},
    "store": {"path": "/x/y.db", "fault": None, "replaced": ["/x/y.db.damaged-1"]},
}


def status(**changes):
    well = {
        "sensor": {"state": "running", "last_fault": None, "devices": {"gpu0": {"state": "good"}}},
        "probes": [{"probe": "encoder", "device": "gpu0", "fault": None}],
        "sinks": {"influxdb": {"retry_in_s": None, "last_error": "once"}},
        "notifiers": {"ops": {"failing": None}},
        "store": {"path": "/var/lib/costprobe/costprobe.db", "fault": None},
        "config_fault": None,
    }
    return {**well, **changes}


# What a part of the status shows, and the name, severity, labels and words of its fault.
CASES = [
    (
        {"sensor": {"state": "running", "devices": {"gpu3": {"state": "quarantined"}}}},
        ("device_lost", "critical", {"device": "gpu3"}, "costprobe doctor"),
    ),
    (
        {"sensor": {"state": "waiting", "devices": {}, "last_fault": "Xid 79"}},
        ("sensor_restarting", "warning", {}, "Xid 79"),
    ),
    (
        {"probes": [{"probe": "e", "device": "gpu0", "fault": {"title": "out of memory"}}]},
        ("probe_failing", "warning", {"device": "gpu0", "probe": "e"}, "out of memory"),
    ),
    (
        {"services": [{"service": "chat", "fault": "http://x: away", "last": None}]},
        ("service_unread", "warning", {"service": "chat"}, "http://x: away"),
    ),
    (
        {"kubernetes": {"fault": "the kubelet: unavailable"}},
        ("pods_unread", "warning", {}, "the kubelet: unavailable"),
    ),
    (
        {"services": [{"service": "a", "fault": None, "last": {"cost_problems": ["set share"]}}]},
        ("service_uncosted", "warning", {"service": "a"}, "set share"),
    ),
    (
        {"sinks": {"eu": {"retry_in_s": 12.0, "last_error": "refused"}}},
        ("sink_behind", "warning", {"sink": "eu"}, "refused"),
    ),
    (
        {"sinks": LOST["sinks"]},
        ("rows_rejected", "warning", {"sink": "eu"}, "rejected 120 points (type conflict)"),
    ),
    ({"store": LOST["store"]}, ("store_replaced", "critical", {}, "/x/y.db.damaged-1")),
    (
        {"notifiers": {"ops": {"failing": "401"}}},
        ("notifier_failing", "warning", {"notifier": "ops"}, "401"),
    ),
    (
        {"store": {"path": "/x/y.db", "fault": "disk full"}},
        ("store_failing", "critical", {}, "disk full"),
    ),
    ({"config_fault": "a: bad\nb: bad"}, ("config_refused", "warning", {}, "(and 1 more)")),
]


def test_each_fault_is_found_and_a_healthy_status_has_none():
    assert present_faults(status(), ROOM) == present_faults(status(), None) == []
    optional = ("kubernetes", "services", "spot_prices", "carbon", "http", "absent_boards")
    assert present_faults(status(**dict.fromkeys(optional)), ROOM) == []
    found = [present_faults(status(**changes), ROOM) for changes, _ in CASES]
    assert [(f.name, f.severity, dict(f.labels)) for (f,) in found] == [
        (name, severity, labels) for _, (name, severity, labels, _) in CASES
    ]
    for (fault,), (_, (*_, words)) in zip(found, CASES, strict=True):
        assert words in fault.words


def test_lost_rows_alert_immediately_without_configuration():
    engine = AlertEngine(DEFAULT_RULES, AlertingConfig(), (), (), {"host": "h"})
    engine.tick(1, present_faults(status(**LOST), ROOM))
    # Neither hides the other.
    assert {(alert.name, alert.state, alert.cause) for alert in engine.alerts()} == {
        ("rows-rejected", "firing", "rows_rejected"),
        ("store-replaced", "firing", "store_replaced"),
    }


def test_fault_that_is_over_states_what_it_was_without_advice():
    (fault,) = present_faults(status(), Disk(GIB, 100 * GIB))
    rule = FaultRule(FaultRuleConfig(kind="fault", name="f"))
    (symptom,) = rule.evaluate(10**9, [fault])
    assert symptom.detail.startswith("To do: free some space")
    over = rule.ended(symptom, 61 * 10**9)
    assert (over.text, over.detail) == (f"over (00:00 to 00:01 UTC): {fault.text}", "")


def test_disk_is_low_if_share_and_free_bytes_are_low(tmp_path: Path):
    (fault,) = present_faults(status(), Disk(GIB, 100 * GIB))
    assert (fault.name, fault.severity) == ("disk_low", "critical")
    assert "1.0 GiB (1 %)" in fault.text
    assert present_faults(status(), Disk(3 * GIB, 100 * GIB)) == []
    assert present_faults(status(), Disk(GIB, 8 * GIB)) == []
    disk = disk_of(tmp_path / "costprobe.db")
    assert 0 < disk.free_bytes <= disk.total_bytes
