"""A real Alertmanager lists firing alerts and removes resolved ones."""

import time
from datetime import datetime

import pytest
from costprobe.adapters.http.errors import Misconfigured, Rejected
from costprobe.delivery.alertmanager import Alertmanager, AlertmanagerConfig, to_documents
from fakes.cases import check_all
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.servers import Scripted
from record.record_files import check as check_record

LASTS_NS = 240 * NS_PER_S


def sender_of(url, **more):
    more = {"timeout": "5s"} | more
    return Alertmanager(AlertmanagerConfig(name="am", kind="alertmanager", url=url, **more))


def now(host, **more):
    """Return an incident that starts now, with a host label unique to the test."""
    since_ns = time.time_ns() - 60 * NS_PER_S
    known = {"labels": {"host": host, "device": "gpu0"}, "since_ns": since_ns, "fired_ns": since_ns}
    return incident(**(known | more))


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def test_firing_alert_is_listed_with_its_labels(alertmanager):
    alert = now("listed", labels={"host": "listed", "gpu-type.2": "H200", "empty": "", "7x": "y"})
    sender_of(alertmanager.url).send([alert], time.time_ns())
    sender_of(alertmanager.url + "/").send([alert], time.time_ns())
    (found,) = alertmanager.active(host="listed")
    assert found["labels"] == {
        "alertname": "drift",
        "severity": "warning",
        "host": "listed",
        "gpu_type_2": "H200",
        "_7x": "y",
    }
    assert found["status"]["state"] == "active"
    assert seconds(found["startsAt"]) == pytest.approx(alert.fired_ns / NS_PER_S, abs=0.002)


def test_resent_alert_lasts_longer_and_expires_without(alertmanager):
    sender, alert, now_ns = sender_of(alertmanager.url), now("again"), time.time_ns()
    sender.send([alert], now_ns)
    (first,) = alertmanager.active(host="again")
    assert seconds(first["endsAt"]) == pytest.approx(now_ns / NS_PER_S + 240, abs=0.002)
    sender.send([alert], now_ns + 60 * NS_PER_S)
    (second,) = alertmanager.active(host="again")
    assert seconds(second["endsAt"]) - seconds(first["endsAt"]) == pytest.approx(60, abs=0.002)
    assert second["fingerprint"] == first["fingerprint"]
    # Last sent five minutes ago: its sender has stopped.
    sender.send([now("dead")], now_ns - 300 * NS_PER_S)
    assert alertmanager.active(host="dead") == []


AGO_NS = {"state": "resolved", "ended_ns": -30 * NS_PER_S}
# What is sent, request by request, and the ids and severities that are listed then; times are relative to now.
REQUESTS = {
    "resolved now": ([[{}], [{"state": "resolved", "ended_ns": 0}]], []),
    "resolved before": ([[{}], [AGO_NS]], []),
    "raised": ([[{"severity": "info"}], [{"severity": "critical", "raised_from": "info"}]], [
        ("3f2a-1", "critical"),
    ]),
    "raised and resolved": (
        [[{"severity": "critical", "raised_from": "info"}], [{**AGO_NS, "severity": "critical"}]], [],
    ),
    "a backlog in one request": (
        [[{"id": "a"}, {**AGO_NS, "id": "a"}, {"id": "b", "fired_ns": -10 * NS_PER_S},
          {"id": "c", "name": "other"}]],
        [("b", "warning"), ("c", "warning")],
    ),
}  # fmt: skip


def test_alerts_are_listed_until_they_are_resolved(alertmanager):
    def check(host, requests, listed):
        sender, now_ns = sender_of(alertmanager.url), time.time_ns()
        for alerts in requests:
            # A time is the age that the table gives.
            sent = [
                now(host, **{k: now_ns + v if k.endswith("_ns") else v for k, v in one.items()})
                for one in alerts
            ]
            sender.send(sent, now_ns)
        found = alertmanager.active(host=host)
        assert sorted((a["annotations"]["id"], a["labels"]["severity"]) for a in found) == listed

    check_all(check, [(host, *case) for host, case in REQUESTS.items()])


def test_refusals_are_errors_by_what_the_caller_has_to_do(alertmanager):
    with pytest.raises(Misconfigured, match="404"):
        sender_of(alertmanager.url + "/elsewhere").send([now("lost")], time.time_ns())
    nameless = incident(name="", labels={}, severity="")
    with pytest.raises(Rejected, match="HTTP 400: at least one label pair required"):
        sender_of(alertmanager.url).send([nameless], time.time_ns())


def test_login_page_of_a_proxy_is_not_an_acknowledgement():
    page = {"Content-Type": "text/html; charset=utf-8"}, b"<html>Please log in</html>"
    with (
        Scripted(lambda *_: (200, *page)) as server,
        pytest.raises(Misconfigured, match="check url"),
    ):
        sender_of(server.url).send([incident()], SINCE_NS)


# What differs from an incident that fires, and the time of the request.
DOCUMENTS = {
    "resolved at once": ({"state": "resolved", "ended_ns": SINCE_NS}, SINCE_NS),
    "raised, on a clock behind its start": (
        {"severity": "critical", "raised_from": "warning"},
        SINCE_NS - NS_PER_S,
    ),
    # The alert with the labels before it ends.
    "updated": ({"revision": 2}, SINCE_NS),
    "labels of one name, of which the valid one counts": (
        {"labels": {"a-b": "1", "a_b": "2", "severity": "none", "alertname": "x"}},
        SINCE_NS,
    ),
    "many symptoms": ({"symptoms": (symptom(text="x"),) * 1000, "is_flapping": True}, SINCE_NS),
    "a long symptom": ({"symptoms": (symptom(text="long\n" * 1000),)}, SINCE_NS),
}


def test_documents_are_as_recorded():
    made = {
        name: to_documents(incident(**more), now_ns, LASTS_NS)
        for name, (more, now_ns) in DOCUMENTS.items()
    }
    check_record("alertmanager_documents.json", made)
