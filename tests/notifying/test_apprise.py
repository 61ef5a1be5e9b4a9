"""Apprise tells in a process of its own, which knows the address and shows it to nobody."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.mail import Mailbox
from fakes.processes import children_of
from fakes.servers import Scripted, Talking, free_port

import agent
from agent.config_notifier import AppriseConfig
from agent.notifying.apprise import Apprise
from agent.notifying.sender import Misconfigured, RetryLater

CANARY = "c4nary5ecret"
ROOT = Path(__file__).resolve().parents[2]


def mail_url(port, password=CANARY):
    return (
        f"mailto://me:{password}@127.0.0.1:{port}/?mode=insecure&smtp=127.0.0.1"
        "&from=infercost@example.org&to=ops@example.org"
    )


@pytest.fixture
def sender(secret):
    """A sender for an address, which tells for so long."""

    def build(url, timeout="30s", python=(sys.executable,)):
        path = secret("address", url)
        config = AppriseConfig(name="mail", kind="apprise", url_file=path, timeout=timeout)
        return Apprise(config, None, python)

    return build


def failure(sender, error):
    with pytest.raises(error) as caught:
        sender.send([incident()], SINCE_NS)
    said = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {vars(sender)}"
    assert CANARY not in said
    return caught.value


def tellers():
    """Command line and environment of the processes that tell a message for us now."""
    found = []
    for pid in children_of(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"agent.notifying.apprise_child" in words:
            found.append(words + Path(f"/proc/{pid}/environ").read_bytes())
    return found


def test_a_mail_arrives_with_its_subject_and_its_lines(sender):
    ended_ns = SINCE_NS + 300 * NS_PER_S
    told = [
        incident(severity="critical", raised_from="warning", name="drift\nBcc: me@example.org"),
        incident(state="pending"),
        incident(state="resolved", ended_ns=ended_ns),
    ]
    with Mailbox("me", CANARY) as box:
        sender(mail_url(box.port)).send(told, SINCE_NS)
    fired, resolved = box.messages
    assert fired["Subject"] == "[FIRING] drift Bcc: me@example.org critical (was warning)"
    assert fired["Bcc"] is None
    assert fired["To"] == "ops@example.org"
    text = fired.get_body(("plain", "html")).get_content()
    assert "gpu0 is slower because it throttles" in text
    assert "SM clock 1980 → 1815 MHz" in text
    assert "+5 % energy" in text
    assert "device=gpu0, host=node7" in text
    assert "since 2026-05-28T20:26:40" in text
    assert resolved["Subject"] == "[RESOLVED] drift warning"
    assert "until 2026-05-28T20:31:40" in resolved.get_body(("plain", "html")).get_content()
    assert tellers() == []


def test_apprise_is_not_loaded_here():
    assert "apprise" not in sys.modules


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"severity": "critical", "is_test": True}, "failure"),
        ({"severity": "info"}, "info"),
        ({"state": "resolved", "severity": "critical"}, "success"),
    ],
)
def test_the_type_follows_severity_and_state(sender, more, kind):
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        large = (symptom(text="x" * 1000),) * 60
        sender(server.url.replace("http:", "json:")).send(
            [incident(symptoms=large, **more)], SINCE_NS
        )
    ((_, _, _, body),) = server.requests
    assert f'"type": "{kind}"'.encode() in body
    assert (b"[TEST] drift critical" in body) is bool(more.get("is_test"))
    assert len(body) < 6000


def ends(pid):
    """True once a process is gone, or only waits for whoever inherited it to see so."""
    for _ in range(1000):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] in {"Z", "X"}:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("refusal", ["451 try again", f"554 {CANARY} is refused"])
def test_what_the_service_does_not_take_is_told_later(sender, refusal):
    with Mailbox("me", CANARY, refusal) as box:
        found = failure(sender(mail_url(box.port)), RetryLater)
    assert "did not take" in found.reason
    assert "--config" in found.reason


def test_a_wrong_password_is_told_later_and_not_shown(sender):
    with Mailbox("me", "another") as box:
        failure(sender(mail_url(box.port)), RetryLater)
    assert box.messages == []


def test_a_service_that_says_why_is_quoted_by_its_status_alone(sender):
    with Scripted(lambda *_: (401, {}, CANARY.encode())) as server:
        url = server.url.replace("http:", "json:") + f"/{CANARY}"
        assert "(HTTP 401)" in failure(sender(url), RetryLater).reason


def test_a_service_that_is_away_is_told_later(sender):
    failure(sender(mail_url(free_port())), RetryLater)


@pytest.mark.parametrize(
    "url", [f"nonsense{CANARY}", f"no://{CANARY}", "mailto://", f"slack://{CANARY}"]
)
def test_an_address_that_apprise_does_not_know_is_the_operators(sender, url):
    found = failure(sender(url), Misconfigured)
    assert "address" in found.reason


def test_without_the_package_the_fix_is_named(sender, monkeypatch):
    # Without its site-packages it finds our own modules by this alone.
    monkeypatch.setenv("PYTHONPATH", str(Path(agent.__file__).parents[1]))
    found = failure(sender(mail_url(9), python=(sys.executable, "-S")), Misconfigured)
    assert "pip install apprise" in found.reason


def test_no_process_shows_the_address(sender):
    seen = []
    with Talking(lambda _: seen.extend(tellers())) as server:
        failure(sender(f"json://127.0.0.1:{server.port}/{CANARY}"), RetryLater)
    assert len(seen) == 1
    assert CANARY.encode() not in seen[0]
    assert tellers() == []


@pytest.mark.parametrize("script", ["sleep 300", "echo half; sleep 300", "trap '' TERM; sleep 300"])
def test_what_hangs_is_cut_off(sender, script):
    hung = sender("json://h", timeout="300ms", python=("/bin/sh", "-c", f"printf x; {script}"))
    failure(hung, RetryLater)
    assert tellers() == []


def test_closing_ends_the_process_that_tells(sender):
    reached = threading.Event()

    def talk(connection):
        reached.set()
        while connection.recv(65536):
            pass

    with Talking(talk) as server:
        slow = sender(f"json://127.0.0.1:{server.port}/?rto=60")

        def close():
            assert reached.wait(60)
            slow.close()
            slow.close()

        closer = threading.Thread(target=close)
        closer.start()
        assert "without an answer" in failure(slow, RetryLater).reason
        closer.join()
    assert tellers() == []


@pytest.mark.parametrize("script", ["exit 3", "echo rubbish", "yes", "echo []", "printf 1"])
def test_a_process_that_answers_rubbish_is_tried_again(sender, script):
    found = failure(sender("json://h", python=("/bin/sh", "-c", script)), RetryLater)
    assert "without an answer" in found.reason


def test_what_the_process_started_ends_with_it(sender, tmp_path):
    script = f'sleep 300 & echo $! >{tmp_path}/pid; echo "{{}}"'
    failure(sender("json://h", python=("/bin/sh", "-c", script)), RetryLater)
    assert ends(int((tmp_path / "pid").read_text()))


def test_an_interpreter_that_is_not_there_is_tried_again(sender):
    assert "No such file" in failure(sender("json://h", python=("/nowhere",)), RetryLater).reason


def test_no_proxy_of_the_environment_is_used(sender, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        sender(server.url.replace("http:", "json:")).send([incident()], SINCE_NS)
    assert len(server.requests) == 1
