"""Apprise sends from a child process that reads the URL from standard input and never shows it."""

import os
import sys
import threading
from pathlib import Path

import costprobe
import pytest
from costprobe.adapters.http.errors import Misconfigured, RetryLater
from costprobe.configuration import parse
from costprobe.delivery.apprise import CHATS, Apprise, AppriseConfig
from fakes.cases import check_all
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.mail import Mailbox
from fakes.processes import children_of, is_alive
from fakes.servers import Scripted, Talking, free_port

CANARY = "c4nary5ecret"


def mail_url(port, password=CANARY):
    return (
        f"mailto://me:{password}@127.0.0.1:{port}/?mode=insecure&smtp=127.0.0.1"
        "&from=costprobe@example.org&to=ops@example.org"
    )


@pytest.fixture
def sender(secret):
    """Build a sender for a URL with a timeout."""

    def build(url, timeout="30s", python=(sys.executable,)):
        path = secret("address", url)
        config = AppriseConfig(name="mail", kind="apprise", url=f"file:{path}", timeout=timeout)
        return Apprise(config, python)

    return build


def failure(sender, error):
    with pytest.raises(error) as caught:
        sender.send([incident()], SINCE_NS)
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {vars(sender)}"
    assert CANARY not in shown
    return caught.value


def sending_processes():
    """Return command line and environment of the running child processes that send a message."""
    found = []
    for pid in children_of(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"costprobe.delivery.apprise_child" in words:
            found.append(words + Path(f"/proc/{pid}/environ").read_bytes())
    return found


def test_mail_arrives_with_subject_and_text(sender):
    ended_ns = SINCE_NS + 300 * NS_PER_S
    alerts = [
        incident(severity="critical", raised_from="warning", name="drift\nBcc: me@example.org"),
        incident(state="pending"),
        incident(state="resolved", ended_ns=ended_ns),
    ]
    with Mailbox("me", CANARY) as box:
        sender(mail_url(box.port)).send(alerts, SINCE_NS)
    fired, resolved = box.messages
    assert fired["Subject"] == "[FIRING] drift Bcc: me@example.org critical (was warning)"
    assert fired["Bcc"] is None
    assert fired["To"] == "ops@example.org"
    text = fired.get_body(("plain", "html")).get_content()
    assert "gpu0 is slower because it throttles" in text
    assert "SM clock 1980 → 1815 MHz" in text
    assert "+5 % energy" in text
    assert "device=gpu0, host=node7" in text
    assert "since 2026-05-28 20:26:40 UTC" in text
    assert resolved["Subject"] == "[RESOLVED] drift warning"
    assert "resolved 2026-05-28 20:31:40 UTC" in resolved.get_body(("plain", "html")).get_content()
    assert sending_processes() == []


def test_type_follows_severity_and_state(sender):
    cases = (
        ({"severity": "critical", "is_test": True}, b"failure", b"[TEST] drift critical"),
        ({"severity": "info"}, b"info", b"[FIRING] drift info"),
        ({"state": "resolved", "severity": "critical"}, b"success", b"[RESOLVED] drift critical"),
    )
    large = (symptom(text="x" * 1000),) * 60
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        sender(server.url.replace("http:", "json:")).send(
            [incident(symptoms=large, **more) for more, _, _ in cases], SINCE_NS
        )
    for (_, _, _, body), (_, kind, subject) in zip(server.requests, cases, strict=True):
        assert b'"type": "%b"' % kind in body
        assert subject in body
        assert len(body) < 6000


def test_wrong_password_is_retried_and_not_shown(sender):
    with Mailbox("me", "x") as box:
        found = failure(sender(mail_url(box.port)), RetryLater)
    assert "did not accept" in found.reason
    assert "--config" in found.reason
    assert box.messages == []


# A URL, the interpreter of the child, the error and a word of its reason.
FAILURES = (
    *((url, (sys.executable,), Misconfigured, "URL") for url in (f"no://{CANARY}", "mailto://")),
    (mail_url(9), (sys.executable, "-S"), Misconfigured, "pip install apprise"),
    *(
        ("json://h", ("/bin/sh", "-c", script), RetryLater, "ended without a result")
        for script in ("exit 3", "echo malformed", "yes", "echo []", "printf 1")
    ),
    ("json://h", ("/nowhere",), RetryLater, "No such file"),
)


def test_failures_are_errors_by_what_the_caller_has_to_do(sender, monkeypatch):
    # Without site-packages the child finds our own modules only through this path.
    monkeypatch.setenv("PYTHONPATH", str(Path(costprobe.__file__).parents[1]))

    def check(url, python, error, words):
        assert words in failure(sender(url, python=python), error).reason

    check_all(check, FAILURES)


def test_url_is_checked_without_sending(sender):
    """Each kind of CHATS, with the addresses that their services give."""
    key = "TIiajkdnlazkcOXrIdevi7FQ"
    flow = "triggers/manual/paths/invoke?api-version=2016-06-01&sp=x&sv=1.0&sig=abcdefghij"
    good = {
        "slack": f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{key}",
        "teams": f"https://prod-25.westeurope.logic.azure.com:443/workflows/e9e0a1a3/{flow}",
        "discord": f"https://discord.com/api/webhooks/4174216298/{key}",
        "pagerduty": f"pagerduty://{key}@{key}",
        "email": "mailtos://user:pw@smtp.example.com?from=a@example.com&to=b@example.com",
    }
    assert set(good) == set(CHATS)
    assert {kind: sender(url).problems() for kind, url in good.items()} == {
        kind: [] for kind in good
    }
    (problem,) = sender(f"https://example.com/{CANARY}").problems()
    assert "Apprise has no service for this URL" in problem
    assert CANARY not in problem
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        assert sender(server.url.replace("http:", "json:")).problems() == []
    assert server.requests == []


def test_kind_of_a_chat_is_apprises(tmp_path):
    text = f'[[notifier]]\nname = "a"\nkind = "slack"\nurl = "file:{tmp_path}/slack.url"\n'
    (notifier,) = parse(text, tmp_path / "c.toml").notifier
    assert (notifier.kind, notifier.url.path) == ("apprise", tmp_path / "slack.url")


def test_hanging_child_is_killed(sender):
    for script in ("sleep 300", "echo half; sleep 300", "trap '' TERM; sleep 300"):
        hung = sender("json://h", timeout="300ms", python=("/bin/sh", "-c", f"printf x; {script}"))
        failure(hung, RetryLater)
        assert sending_processes() == []


def test_close_kills_the_running_child(sender):
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
        assert "ended without a result" in failure(slow, RetryLater).reason
        closer.join()
    assert sending_processes() == []


def test_processes_started_by_the_child_are_killed_with_it(sender, tmp_path, wait_until):
    script = f'sleep 300 & echo $! >{tmp_path}/pid; echo "{{}}"'
    failure(sender("json://h", python=("/bin/sh", "-c", script)), RetryLater)
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_connection_has_no_proxy_of_the_environment_and_cannot_be_weakened(sender, monkeypatch):
    """The headers of the URL stay with its server, which may not redirect."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    answers = [(200, {}, b"{}")]
    with Scripted(lambda *_: answers[-1]) as server, Scripted(lambda *_: (200, {}, b"")) as other:
        url = server.url.replace("http:", "json:")
        for option in ("verify=no", "redirect=yes"):
            assert option in failure(sender(f"{url}/?{option}"), Misconfigured).reason
        assert server.requests == []
        sender(url).send([incident()], SINCE_NS)
        answers.append((302, {"Location": f"{other.url}/stolen"}, b""))
        reason = failure(sender(f"{url}/?+X-Token={CANARY}"), Misconfigured).reason
    assert "redirects (HTTP 302)" in reason
    assert (len(server.requests), other.requests) == (2, [])
