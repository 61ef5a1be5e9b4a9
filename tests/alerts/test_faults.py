"""Failures in a status document become faults that state the fix."""

from pathlib import Path

import pytest
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.faults import (
    GIB,
    Disk,
    disk_of,
    present_faults,
)
from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.settings import AlertingConfig


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


ROOM = Disk(100 * GIB, 1000 * GIB)


def test_healthy_status_has_no_fault():
    assert present_faults(status(), ROOM) == []
    assert present_faults(status(), None) == []


@pytest.mark.parametrize(
    ("changes", "name", "severity", "labels", "words"),
    [
        (
            {"sensor": {"state": "running", "devices": {"gpu3": {"state": "quarantined"}}}},
            "device_lost",
            "critical",
            {"device": "gpu3"},
            "costprobe doctor",
        ),
        (
            {"sensor": {"state": "waiting", "devices": {}, "last_fault": "Xid 79"}},
            "sensor_restarting",
            "warning",
            {},
            "Xid 79",
        ),
        (
            {"probes": [{"probe": "e", "device": "gpu0", "fault": {"title": "out of memory"}}]},
            "probe_failing",
            "warning",
            {"device": "gpu0", "probe": "e"},
            "out of memory",
        ),
        (
            {"services": [{"service": "chat", "fault": "http://x: away", "last": None}]},
            "service_unread",
            "warning",
            {"service": "chat"},
            "http://x: away",
        ),
        (
            {"kubernetes": {"fault": "the kubelet: unavailable"}},
            "pods_unread",
            "warning",
            {},
            "the kubelet: unavailable",
        ),
        (
            {
                "services": [
                    {"service": "chat", "fault": None, "last": {"cost_problems": ["set share"]}}
                ]
            },
            "service_uncosted",
            "warning",
            {"service": "chat"},
            "set share",
        ),
        (
            {"sinks": {"eu": {"retry_in_s": 12.0, "last_error": "refused"}}},
            "sink_behind",
            "warning",
            {"sink": "eu"},
            "refused",
        ),
        (
            {
                "sinks": {
                    "eu": {
                        "retry_in_s": None,
                        "rejections": {"points": 120, "last_ns": 1, "reason": "type conflict"},
                    }
                }
            },
            "rows_rejected",
            "warning",
            {"sink": "eu"},
            "rejected 120 points (type conflict)",
        ),
        (
            {"store": {"path": "/x/y.db", "fault": None, "replaced": ["/x/y.db.damaged-1"]}},
            "store_replaced",
            "critical",
            {},
            "/x/y.db.damaged-1",
        ),
        (
            {"notifiers": {"ops": {"failing": "401"}}},
            "notifier_failing",
            "warning",
            {"notifier": "ops"},
            "401",
        ),
        (
            {"store": {"path": "/x/y.db", "fault": "disk full"}},
            "store_failing",
            "critical",
            {},
            "disk full",
        ),
        ({"config_fault": "a: bad\nb: bad"}, "config_refused", "warning", {}, "(and 1 more)"),
    ],
)
def test_each_fault_is_found(changes, name, severity, labels, words):
    (fault,) = present_faults(status(**changes), ROOM)
    assert (fault.name, fault.severity, dict(fault.labels)) == (name, severity, labels)
    assert words in fault.text


def test_lost_rows_alert_immediately_without_configuration():
    lost = {
        "sinks": {
            "eu": {
                "retry_in_s": None,
                "rejections": {"points": 120, "last_ns": 1, "reason": "type conflict"},
            }
        },
        "store": {"path": "/x/y.db", "fault": None, "replaced": ["/x/y.db.damaged-1"]},
    }
    engine = AlertEngine(DEFAULT_RULES, AlertingConfig(), (), (), {"host": "h"})
    engine.tick(1, present_faults(status(**lost), ROOM))
    causes = {s.cause for alert in engine.alerts() for s in alert.symptoms}
    assert {alert.state for alert in engine.alerts()} == {"firing"}
    # Neither hides the other.
    assert {alert.name for alert in engine.alerts()} == {"rows-rejected", "store-replaced"}
    assert causes == {"rows_rejected", "store_replaced"}


def test_disk_is_low_if_share_and_free_bytes_are_low():
    (fault,) = present_faults(status(), Disk(GIB, 100 * GIB))
    assert fault.name == "disk_low"
    assert fault.severity == "critical"
    assert "1.0 GiB (1 %)" in fault.text
    assert present_faults(status(), Disk(3 * GIB, 100 * GIB)) == []
    assert present_faults(status(), Disk(GIB, 8 * GIB)) == []


def test_free_bytes_of_a_real_disk_are_read(tmp_path: Path):
    disk = disk_of(tmp_path / "costprobe.db")
    assert 0 < disk.free_bytes <= disk.total_bytes
