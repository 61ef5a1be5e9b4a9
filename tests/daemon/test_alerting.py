"""A daemon that finds trouble tells whom it should, in order, over outages and crashes."""

import json
import random
import time
from pathlib import Path

import pytest
from fakes.mail import Mailbox
from fakes.nvml import FakeNvml, require_gcc
from fakes.scenes import QUICK
from fakes.servers import Alertmanager, Scripted, running

from agent.clock import SystemClock
from agent.series import make_point
from agent.storage.writer import Store

WORKER = Path(__file__).parents[1] / "fakes" / "worker_python"
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


@pytest.fixture
def gpu(tmp_path):
    require_gcc()
    fake = FakeNvml(tmp_path, gpus=1)
    fake.gpus[0].set(temp_c=60)
    fake.gpus[0].fake = fake
    return fake.gpus[0]


def taking(*_):
    return 200, {}, b"{}"


def webhook(url, name="ops", **more):
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f'[[notifier]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}/{name}"\n{keys}'


def told(server, path="/ops"):
    """What a webhook was told: state and name of each alert."""
    alerts = [json.loads(body)["alert"] for _, at, _, body in server.requests if at == path]
    return [(alert["state"], alert["name"]) for alert in alerts]


def listed(daemon):
    """The incidents as the daemon last kept them; none before its first look."""
    try:
        return daemon.state("alerts")["alerts"]
    except KeyError:
        return []


def test_an_alertmanager_and_a_webhook_hear_of_a_hot_gpu_and_of_its_end(daemon_in, gpu, tmp_path):
    with (
        running(Alertmanager, tmp_path / "am", "prometheus-alertmanager") as alertmanager,
        Scripted(taking) as server,
    ):
        daemon = daemon_in(**gpu.fake.env())
        pager = f'[[notifier]]\nname = "pager"\nkind = "alertmanager"\nurl = "{alertmanager.url}"\n'
        daemon.start(QUICK + HOT + pager + webhook(server.url))
        gpu.set(temp_c=90)
        (alert,) = daemon.wait_for(lambda: alertmanager.active(alertname="hot", device="gpu0"))
        assert alert["labels"]["severity"] == "critical"
        assert alert["annotations"]["summary"] == "temp_c of gpu0 is 90, above 85"
        gpu.set(temp_c=60)
        daemon.wait_for(lambda: not alertmanager.active(alertname="hot"))
        daemon.wait_for(lambda: told(server) == [("firing", "hot"), ("resolved", "hot")])
        states = [row.tags["state"] for row in daemon.points("alert")]
        assert [state for state in states if state != "pending"] == ["firing", "resolved"]
        assert "temp_c of gpu0" in daemon.run("alerts", "history")


def test_a_throttling_gpu_with_two_probes_is_one_alert(daemon_in, gpu):
    probe = '[[probe]]\nname = "{}"\nevery = "2s"\nbatch = 4\nenergy = false\npython = "{}"\n'
    rules = """
[alerting]
evaluate_every = "500ms"
[[rule]]
name = "thermal-throttling"
kind = "threshold"
group = "performance"
measurement = "probe"
field = "throttled_thermal_pct"
above = 5
"""
    daemon = daemon_in(**gpu.fake.env())
    gpu.throttle(thermal_share=0.5)
    probes = "".join(probe.format(name, WORKER) for name in ("a", "b"))
    daemon.start(QUICK + "[probing]\nduty = 1\n" + probes + rules)
    alert = daemon.wait_for(
        lambda: next((a for a in listed(daemon) if len(a["symptoms"]) == 2), None)
    )
    assert (alert["name"], alert["state"]) == ("performance", "firing")
    assert {symptom["labels"]["probe"] for symptom in alert["symptoms"]} == {"a", "b"}
    assert len(listed(daemon)) == 1


def test_nothing_is_lost_over_kill_9_while_a_notifier_is_away(daemon_in, gpu):
    is_up = []

    def answer(*_):
        return (200, {}, b"") if is_up else (503, {}, b"")

    with Scripted(answer) as server:
        daemon = daemon_in(**gpu.fake.env())
        daemon.start(QUICK + HOT + webhook(server.url))
        gpu.set(temp_c=90)
        (before,) = daemon.wait_for(lambda: listed(daemon))
        daemon.wait_for(lambda: server.requests)
        daemon.kill()
        daemon.start()
        (after,) = daemon.wait_for(lambda: listed(daemon))
        assert (after["id"], after["since_ns"]) == (before["id"], before["since_ns"])
        gpu.set(temp_c=60)
        daemon.wait_for(lambda: not listed(daemon))
        daemon.kill()
        server.requests.clear()
        is_up.append(True)
        daemon.start()
        daemon.wait_for(lambda: told(server) == [("firing", "hot"), ("resolved", "hot")])


def test_a_dead_notifier_delays_no_other_and_is_a_fault_of_its_own(daemon_in, gpu):
    faults = '[[rule]]\nname = "failing"\nkind = "fault"\nfaults = ["notifier_failing"]\n'
    with Scripted(taking) as server:
        daemon = daemon_in(**gpu.fake.env())
        dead = webhook("http://127.0.0.1:1", "dead")
        daemon.start(QUICK + HOT + faults + dead + webhook(server.url))
        gpu.set(temp_c=90)
        daemon.wait_for(lambda: ("firing", "hot") in told(server))
        daemon.wait_for(lambda: ("firing", "failing") in told(server))
        status = daemon.wait_for(
            lambda: (found := daemon.state("status")["notifiers"])["dead"]["failing"] and found
        )
        assert status["ops"]["failing"] is None
        assert "FAULT" in daemon.run("status")


def test_a_gpu_that_falls_off_the_bus_is_a_critical_alert(daemon_in, gpu):
    rules = '[alerting]\nevaluate_every = "500ms"\n'
    with Scripted(taking) as server:
        daemon = daemon_in(**gpu.fake.env())
        daemon.start(QUICK + rules + webhook(server.url))
        daemon.wait_for(lambda: daemon.points("device"))
        gpu.vanish()
        daemon.wait_for(lambda: ("firing", "broken") in told(server))
        alert = json.loads(server.requests[0][3])["alert"]
        assert alert["severity"] == "critical"
        assert alert["labels"]["device"] == "gpu0"


def test_a_silence_holds_over_a_restart_and_what_still_fires_is_told_after_it(daemon_in, gpu):
    with Scripted(taking) as server:
        daemon = daemon_in(**gpu.fake.env())
        daemon.start(QUICK + HOT + webhook(server.url))
        added = daemon.run(
            "silence", "--match", "device=gpu*", "--for", "1h", "--comment", "a new fan"
        )
        number = added.split()[1]
        gpu.set(temp_c=90)
        daemon.wait_for(lambda: listed(daemon))
        assert "silenced" in daemon.run("alerts")
        daemon.kill()
        daemon.start()
        daemon.wait_for(lambda: daemon.output.read_text().count("store: ") == 2)
        assert "a new fan" in daemon.run("silence", "list")
        assert "ops: sent" in daemon.run("alerts", "test")
        assert told(server) == [("firing", "test")]
        daemon.run("silence", "end", number)
        daemon.wait_for(lambda: told(server)[1:] == [("firing", "hot")])


def test_a_reload_keeps_what_fires_and_ends_what_no_rule_finds(daemon_in, gpu):
    with Scripted(taking) as server:
        daemon = daemon_in(**gpu.fake.env())
        daemon.start(QUICK + HOT + webhook(server.url))
        gpu.set(temp_c=90)
        daemon.wait_for(lambda: told(server) == [("firing", "hot")])
        (before,) = listed(daemon)
        daemon.write(QUICK + HOT.replace("above = 85", "above = 86") + webhook(server.url))
        daemon.signal(1)
        daemon.wait_for(lambda: "reloaded" in daemon.output.read_text())
        (after,) = listed(daemon)
        assert after["id"] == before["id"]
        daemon.write(QUICK + "[alerting]\ndefaults = false\n" + webhook(server.url))
        daemon.signal(1)
        daemon.wait_for(lambda: told(server) == [("firing", "hot"), ("resolved", "hot")])


def test_mail_is_sent_and_the_daemon_stays_small(daemon_in, gpu, tmp_path):
    with Mailbox("me", "pass") as mailbox:
        url = tmp_path / "apprise.url"
        url.write_text(
            f"mailto://me:pass@127.0.0.1:{mailbox.port}/?mode=insecure&smtp=127.0.0.1"
            "&from=infercost@example.org&to=ops@example.org"
        )
        daemon = daemon_in(**gpu.fake.env())
        mail = f'[[notifier]]\nname = "mail"\nkind = "apprise"\nurl_file = "{url}"\n'
        daemon.start(QUICK + HOT + mail)
        gpu.set(temp_c=90)
        daemon.wait_for(lambda: mailbox.messages)
        assert "[FIRING] hot critical" in mailbox.messages[0]["Subject"]
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        rss_kb = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
        assert int(rss_kb) * 1024 < DAEMON_MEMORY_BYTES
        assert "apprise" not in Path(f"/proc/{daemon.pid}/maps").read_text()


def test_a_drift_against_stored_history_is_found_explained_and_told(daemon_in, gpu):
    """What the fake worker measures is half as slow again as the three days before it."""
    daemon = daemon_in(**gpu.fake.env())
    store, rng, now_ns = Store.open(daemon.store, SystemClock()), random.Random(5), time.time_ns()
    tags = {"host": "h", "device": "gpu0", "probe": "steady", "batch": "4"}
    for index in range(3 * 288):
        value = rng.lognormvariate(0, 0.01)
        time_ns = now_ns - (3 * 288 - index) * 300_000_000_000
        fields = {
            "latency_p50_ms": 2.0 / 1.5 * value,
            "throughput_per_s": 5000 / value,
            "sm_clock_mhz": 1980.0,
            "fingerprint": "old",
        }
        store.append([make_point("probe", tags, fields, time_ns)])
    store.close()
    probe = f'[[probe]]\nname = "steady"\nevery = "1s"\nbatch = 4\nenergy = false\npython = "{WORKER}"\n'
    with Scripted(taking) as server:
        head = '[host]\nname = "h"\n[probing]\nduty = 1\n[alerting]\nevaluate_every = "500ms"\n'
        daemon.start(QUICK + head + probe + webhook(server.url))
        daemon.wait_for(lambda: ("firing", "performance") in told(server))
    (event,) = [
        row for row in daemon.points("event", kind="drift") if row.tags["metric"] == "latency"
    ]
    assert event.fields["change_pct"] == pytest.approx(50, abs=3)
    assert event.fields["cause"] == "software: fingerprint"
