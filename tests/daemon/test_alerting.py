"""A real daemon delivers alerts to real receivers, in order, over outages, crashes and reloads."""

import json
from pathlib import Path

import pytest
from fakes.mail import Mailbox
from fakes.scenes import QUICK
from fakes.servers import Alertmanager, Scripted, Talking, running

HOT = """
[alerting]
evaluate_every = "500ms"
defaults = false
[[rule]]
name = "hot"
kind = "threshold"
measurement = "device"
field = "temp_c"
above = 85
clear = 80
severity = "critical"
"""
DAEMON_MEMORY_BYTES = 64 << 20


FAILING = '[[rule]]\nname = "failing"\nkind = "fault"\nfaults = ["notifier_failing"]\n'


@pytest.fixture
def host(gpus_of):
    """A host with one cool GPU."""
    host = gpus_of(1)
    host.gpus[0].set(temp_c=60)
    return host


def taking(*_):
    return 200, {}, b"{}"


def hang(connection):
    while connection.recv(65536):
        pass


def webhook(url, name="ops", **more):
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f'[[notifier]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}/{name}"\n{keys}'


def received(server, path="/ops"):
    """Return state and name of each alert that a webhook received."""
    alerts = [json.loads(body)["alert"] for _, at, _, body in server.requests if at == path]
    return [(alert["state"], alert["name"]) for alert in alerts]


def listed(daemon):
    """The stored incidents; none before the first evaluation."""
    try:
        return daemon.state("alerts")["alerts"]
    except KeyError:
        return []


def test_incident_reaches_every_notifier_and_one_that_fails_delays_no_other(
    daemon_in, host, tmp_path
):
    with (
        running(Alertmanager, tmp_path / "am", "prometheus-alertmanager") as alertmanager,
        Scripted(taking) as server,
        Mailbox("me", "pass") as mailbox,
        Talking(hang) as hanging,
    ):
        url = tmp_path / "apprise.url"
        url.write_text(
            f"mailto://me:pass@127.0.0.1:{mailbox.port}/?mode=insecure&smtp=127.0.0.1"
            "&from=costprobe@example.org&to=ops@example.org"
        )
        daemon = daemon_in(**host.env())
        notifiers = (
            f'[[notifier]]\nname = "pager"\nkind = "alertmanager"\nurl = "{alertmanager.url}"\n'
            f'[[notifier]]\nname = "mail"\nkind = "apprise"\nurl = "file:{url}"\n'
        )
        dead = webhook(hanging.url, "dead", timeout="500ms")
        daemon.start(QUICK + HOT + FAILING + notifiers + dead + webhook(server.url))
        host.gpus[0].set(temp_c=90)
        (alert,) = daemon.wait_for(lambda: alertmanager.active(alertname="hot", device="gpu0"))
        assert alert["labels"]["severity"] == "critical"
        assert alert["annotations"]["summary"] == "temp_c of gpu0 is 90, above 85"
        daemon.wait_for(lambda: ("firing", "failing") in received(server))
        daemon.wait_for(lambda: daemon.status()["notifiers"]["dead"]["failing"])
        assert daemon.status()["notifiers"]["ops"]["failing"] is None
        assert "FAULT" in daemon.look("status")
        daemon.wait_for(lambda: mailbox.messages)
        assert any("[FIRING] hot critical" in each["Subject"] for each in mailbox.messages)
        host.gpus[0].set(temp_c=60)
        daemon.wait_for(lambda: not alertmanager.active(alertname="hot"))
        daemon.wait_for(lambda: ("resolved", "hot") in received(server))
        hot = [state for state, name in received(server) if name == "hot"]
    states = [row.tags["state"] for row in daemon.points("alert", rule="hot")]
    assert hot == [state for state in states if state != "pending"] == ["firing", "resolved"]
    assert "temp_c of gpu0" in daemon.look("alerts", "history")
    # Mail is sent by a child: the daemon stays small.
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    rss_kb = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    assert int(rss_kb) * 1024 < DAEMON_MEMORY_BYTES
    assert "apprise" not in Path(f"/proc/{daemon.pid}/maps").read_text()


def test_kill_9_loses_no_notice_while_a_notifier_is_unreachable(daemon_in, host):
    is_up = []

    def answer(*_):
        return (200, {}, b"") if is_up else (503, {}, b"")

    with Scripted(answer) as server:
        daemon = daemon_in(**host.env())
        daemon.start(QUICK + HOT + webhook(server.url))
        host.gpus[0].set(temp_c=90)
        (before,) = daemon.wait_for(lambda: listed(daemon))
        daemon.wait_for(lambda: server.requests)
        daemon.kill()
        daemon.start()
        (after,) = daemon.wait_for(lambda: listed(daemon))
        assert (after["id"], after["since_ns"]) == (before["id"], before["since_ns"])
        host.gpus[0].set(temp_c=60)
        daemon.wait_for(lambda: not listed(daemon))
        daemon.kill()
        server.requests.clear()
        is_up.append(True)
        daemon.start()
        daemon.wait_for(lambda: received(server) == [("firing", "hot"), ("resolved", "hot")])
