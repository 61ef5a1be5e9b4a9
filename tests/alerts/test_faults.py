"""Failures in a status document become faults that state the fix."""

from pathlib import Path

from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.faults import GIB, Disk, disk_of, present_faults
from costprobe.alerts.rules.faults import FaultRule, FaultRuleConfig
from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.settings import AlertingConfig
from record.record_files import check

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


# What a part of the status shows.
CASES = (
    {"sensor": {"state": "running", "devices": {"gpu3": {"state": "quarantined"}}}},
    {"sensor": {"state": "waiting", "devices": {}, "last_fault": "Xid 79"}},
    {"probes": [{"probe": "e", "device": "gpu0", "fault": {"title": "out of memory"}}]},
    {"services": [{"service": "chat", "fault": "http://x: away", "last": None}]},
    {"kubernetes": {"fault": "the kubelet: unavailable"}},
    {"services": [{"service": "a", "fault": None, "last": {"cost_problems": ["set share"]}}]},
    {"sinks": {"eu": {"retry_in_s": 12.0, "last_error": "refused"}}},
    {"sinks": LOST["sinks"]},
    {"store": LOST["store"]},
    {"notifiers": {"ops": {"failing": "401"}}},
    {"store": {"path": "/x/y.db", "fault": "disk full"}},
    {"config_fault": "a: bad\nb: bad"},
)


def test_each_fault_is_found_and_a_healthy_status_has_none():
    assert present_faults(status(), ROOM) == present_faults(status(), None) == []
    optional = ("kubernetes", "services", "spot_prices", "carbon", "http", "absent_boards")
    assert present_faults(status(**dict.fromkeys(optional)), ROOM) == []
    lines = []
    for changes in CASES:
        (fault,) = present_faults(status(**changes), ROOM)
        lines.append(f"{fault.name} {fault.severity} {dict(fault.labels)}: {fault.text}")
        lines += [f"  {text}" for text in (fault.detail, fault.fix) if text]
    check("alert_faults.txt", "\n".join([*lines, ""]))


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
