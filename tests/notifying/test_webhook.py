"""A webhook is told in documented JSON, signed, and its every answer asks one thing of us."""

import hashlib
import hmac
import json
import re
import threading
from pathlib import Path

import pytest
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.schema import violations
from fakes.servers import TLS, Scripted, Talking, free_port

from agent import __version__
from agent.config_notifier import WebhookConfig
from agent.notifying.http import MAX_ANSWER_BYTES
from agent.notifying.sender import Misconfigured, Refused, RetryLater
from agent.notifying.webhook import MAX_SYMPTOMS, Webhook
from agent.retry_after import retry_after_s

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "webhook.schema.json").read_text())
PAGE = (DOCS / "webhook.md").read_text()
NOW_NS = SINCE_NS + 120 * NS_PER_S
CANARY = "c4nary-5ecret"


def webhook(url=None, credentials=None, **more):
    address = {} if url is None else {"url": url}
    config = WebhookConfig(name="ops", kind="webhook", **address, **({"timeout": "5s"} | more))
    return Webhook(config, credentials)


def told(alert, **more):
    """The only request of telling an alert: its headers and its body."""
    with Scripted(lambda *_: (202, {}, b"")) as server:
        webhook(server.url + "/hook?team=7", **more).send([alert], NOW_NS)
    ((method, path, headers, body),) = server.requests
    assert (method, path) == ("POST", "/hook?team=7")
    return headers, body


def failure(url, **more):
    with pytest.raises((RetryLater, Refused, Misconfigured)) as caught:
        webhook(url, **more).send([incident()], NOW_NS)
    assert len(caught.value.reason) < 600
    assert CANARY not in repr(caught.value.__cause__)
    return caught.value


@pytest.mark.parametrize(
    "alert",
    [
        incident(),
        incident(state="resolved", ended_ns=NOW_NS),
        incident(severity="critical", raised_from="warning", is_flapping=True),
        incident(labels={}, symptoms=(), cause="", is_test=True),
        incident(symptoms=(symptom(value=float("nan"), threshold=float("inf")),)),
        incident(symptoms=(symptom(),) * (MAX_SYMPTOMS + 3), summary="Lüfter\n\ud800"),
    ],
)
def test_what_is_sent_is_as_the_schema_has_it(alert):
    _, body = told(alert)
    assert violations(json.loads(body), SCHEMA) == []


def test_what_is_sent_tells_all_of_the_alert():
    alert = incident(
        state="resolved", severity="critical", raised_from="warning", ended_ns=NOW_NS, is_test=True
    )
    headers, body = told(alert)
    document = json.loads(body)
    assert document["schema"] == "infercost.alert/1"
    assert document["sent_at"] == "2026-05-28T20:28:40.123456789Z"
    sent = document["alert"]
    assert sent["symptoms"][0]["text"] == "+7.2 % since 14:05: SM clock 1980 → 1815 MHz"
    assert sent["symptoms"][0]["labels"] == {"device": "gpu0", "probe": "transformer"}
    assert sent["symptoms"][1]["value"] is None
    del sent["symptoms"]
    assert sent == {
        "id": "3f2a-1",
        "name": "drift",
        "state": "resolved",
        "severity": "critical",
        "severity_before": "warning",
        "labels": {"host": "node7", "device": "gpu0"},
        "summary": "gpu0 is slower because it throttles",
        "cause": "thermal throttling",
        "since": "2026-05-28T20:26:40.123456789Z",
        "fired_at": "2026-05-28T20:27:40.123456789Z",
        "ended_at": "2026-05-28T20:28:40.123456789Z",
        "symptoms_left_out": 0,
        "flapping": False,
        "test": True,
    }
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"infercost/{__version__}"
    assert headers["Idempotency-Key"] == "3f2a-1:resolved:critical"
    assert "X-Infercost-Signature" not in headers
    assert "Authorization" not in headers


def test_the_example_of_the_documentation_is_what_is_sent():
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert violations(example, SCHEMA) == []
    _, body = told(incident(symptoms=(symptom(),)))
    assert json.loads(body) == {**example, "sent_at": "2026-05-28T20:28:40.123456789Z"}


def test_a_document_of_another_form_is_told_from_ours():
    _, body = told(incident())
    for spoil in (
        lambda document: document.update(schema="infercost.alert/2"),
        lambda document: document["alert"].pop("id"),
        lambda document: document["alert"].update(severity="bad"),
        lambda document: document["alert"]["labels"].update(host=7),
        lambda document: document["alert"]["symptoms"][0].update(since="now"),
    ):
        document = json.loads(body)
        spoil(document)
        assert len(violations(document, SCHEMA)) == 1


def test_the_signature_is_verified_by_the_documented_code(secret):
    headers, body = told(incident(), key_file=secret("key", f"{CANARY}\n"))
    found = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], found)  # noqa: S102 - the code that the page shows
    header, now_s = headers["X-Infercost-Signature"], NOW_NS / NS_PER_S
    assert found["is_genuine"](CANARY, header, body, now_s)
    assert not found["is_genuine"](CANARY, header, body + b" ", now_s)
    assert not found["is_genuine"]("another", header, body, now_s)
    assert not found["is_genuine"](CANARY, header, body, now_s + 301)
    later = header.replace("t=178", "t=179")
    assert later != header
    assert not found["is_genuine"](CANARY, later, body, now_s + 10_000_000)
    assert not found["is_genuine"](CANARY, "", body, now_s)
    signed = f"{NOW_NS // NS_PER_S}.".encode() + body
    mac = hmac.new(CANARY.encode(), signed, hashlib.sha256).hexdigest()
    assert header == f"t={NOW_NS // NS_PER_S},v1={mac}"


def test_each_alert_is_told_in_order_and_pending_ones_are_not():
    alerts = [incident(id="a"), incident(id="b", state="pending"), incident(id="c")]
    with Scripted(lambda *_: (200, {}, b"ok")) as server:
        webhook(server.url).send(alerts, NOW_NS)
    told_ids = [json.loads(body)["alert"]["id"] for *_, body in server.requests]
    assert told_ids == ["a", "c"]


def test_a_rotated_token_is_read_again_after_a_refusal(secret):
    path = secret("token", "old")

    def answer(_method, _path, headers, _body):
        return (204 if headers["Authorization"] == "Bearer new" else 401), {}, b""

    with Scripted(answer) as server:
        sender = webhook(server.url, token_file=path)
        with pytest.raises(Misconfigured):
            sender.send([incident()], NOW_NS)
        path.write_text("new\n")
        sender.send([incident()], NOW_NS)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "headers", "error", "after_s"),
    [
        (500, {}, RetryLater, None),
        (503, {"retry-after": "17"}, RetryLater, 17),
        (503, {"Retry-After": "Thu, 28 May 2026 20:29:10 GMT"}, RetryLater, 29.876543211),
        (429, {"Retry-After": "1e9"}, RetryLater, 3600),
        (408, {"Retry-After": "soon"}, RetryLater, None),
        (425, {"Retry-After": "nan"}, RetryLater, None),
        (400, {}, Refused, None),
        (409, {}, Refused, None),
        (413, {}, Refused, None),
        (422, {}, Refused, None),
        (301, {"Location": "http://127.0.0.1:9/"}, Misconfigured, None),
        (304, {}, Misconfigured, None),
        (401, {}, Misconfigured, None),
        (403, {}, Misconfigured, None),
        (404, {}, Misconfigured, None),
        (405, {}, Misconfigured, None),
        (410, {}, Misconfigured, None),
    ],
)
def test_each_answer_asks_one_thing(status, headers, error, after_s):
    with Scripted(lambda *_: (status, headers, b"" if status == 304 else b"so it is")) as server:
        found = failure(server.url)
    assert type(found) is error
    assert f"HTTP {status}" in found.reason
    assert getattr(found, "after_s", None) == pytest.approx(after_s)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("value", "after_s"),
    [
        (None, None),
        ("0", 0),
        ("-1", None),
        ("inf", 3600),
        ("Thu, 28 May 2026 20:26:00 GMT", None),
        ("Thu, 28 May 2026 20:27:00 -0000", 19.876543211),
        ("Thu, 99 May 2026 20:27:00 GMT", None),
        ("9" * 6000, 3600),
    ],
)
def test_a_wait_is_bounded_and_never_negative(value, after_s):
    assert retry_after_s(value, SINCE_NS / 1e9) == pytest.approx(after_s)


def test_a_redirect_gets_no_secret(secret):
    with Scripted(lambda *_: (204, {}, b"")) as thief:
        with Scripted(lambda *_: (307, {"Location": thief.url}, b"")) as server:
            found = failure(server.url, token_file=secret("token", CANARY))
        assert thief.requests == []
    assert isinstance(found, Misconfigured)
    assert "redirect" in found.reason


def test_the_servers_own_words_are_told_shortened():
    with Scripted(lambda *_: (422, {}, b'{"message": "no such\\n team"}')) as server:
        assert "HTTP 422: no such team" in failure(server.url).reason
    with Scripted(lambda *_: (500, {}, b"giant " * 2_000_000)) as server:
        found = failure(server.url)
    assert isinstance(found, RetryLater)
    assert found.reason.count("giant") > 10


def test_an_answer_without_end_is_not_read():
    sent = []

    def talk(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent.append(connection.send(b"x" * 65536))

    with Talking(talk) as server:
        webhook(server.url).send([incident()], NOW_NS)
    assert sum(sent) < 500 * MAX_ANSWER_BYTES


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xff\xfe\x00" * 50,
        b"HTTP/1.1 2",
        b"HTTP/1.1 99999 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf of it",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nrubbish\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_whole_answer_is_tried_again(said):
    def talk(connection):
        connection.recv(65536)
        connection.sendall(said)

    with Talking(talk) as server:
        assert isinstance(failure(server.url), RetryLater)


def test_a_server_that_is_away_is_tried_again():
    found = failure(f"http://127.0.0.1:{free_port()}")
    assert isinstance(found, RetryLater)
    assert "Connection refused" in found.reason


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_server_that_hangs_is_tried_again(said):
    release = threading.Event()

    def talk(connection):
        connection.recv(65536)
        connection.sendall(said)
        release.wait(20)

    with Talking(talk) as server:
        found = failure(server.url, timeout="300ms")
        release.set()
    assert isinstance(found, RetryLater)
    assert "no answer within 0.3 s" in found.reason


def test_a_server_that_drips_has_no_longer_than_one_that_hangs():
    dripped = []

    def talk(connection):
        connection.recv(65536)
        while len(dripped) < 200:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            dripped.append(1)
            release.wait(0.05)

    release = threading.Event()
    with Talking(talk) as server:
        found = failure(server.url, timeout="300ms")
    assert isinstance(found, RetryLater)
    assert len(dripped) < 100


def test_a_server_that_refuses_before_it_has_read_all_is_heard():
    def talk(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        while connection.recv(65536):
            pass

    large = incident(symptoms=(symptom(text="x" * 10_000),) * MAX_SYMPTOMS)
    with Talking(talk) as server, pytest.raises(Refused, match="413"):
        webhook(server.url).send([large], NOW_NS)


def test_over_tls_only_a_server_that_is_vouched_for_is_told(tmp_path):
    with Scripted(lambda *_: (204, {}, b"")) as plain:
        found = failure(plain.url.replace("http:", "https:"))
    assert isinstance(found, Misconfigured)
    with Scripted(lambda *_: (204, {}, b""), tls=True) as server:
        webhook(server.url, ca_file=TLS / "server.pem").send([incident()], NOW_NS)
        assert len(server.requests) == 1
        for authority in (None, tmp_path / "missing.pem", Path(__file__)):
            found = failure(server.url, ca_file=authority)
            assert isinstance(found, Misconfigured)
            assert "ca_file" in found.reason
        found = failure(server.url.replace("127.0.0.1", "localhost"), ca_file=TLS / "server.pem")
        assert isinstance(found, Misconfigured)
        assert "localhost" not in found.reason.split("TLS")[1]
        assert len(server.requests) == 1


def test_plain_http_to_a_server_of_https_keeps_the_message():
    told_so = (400, {}, b"Client sent an HTTP request to an HTTPS server.\n")
    with Scripted(lambda *_: told_so) as server:
        assert isinstance(failure(server.url), Misconfigured)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, f"no hook /services/{CANARY}".encode()),
        (403, {}, json.dumps({"message": f"Bearer {CANARY.upper()} is unknown"}).encode()),
        (500, {}, b"\xff" + f"q={CANARY}".encode()),
        (422, {}, b" " * 1590 + CANARY.encode()),
        (301, {"Location": f"/x/{CANARY}"}, b""),
    ],
)
def test_no_secret_is_in_what_an_answer_makes_us_say(answer, secret):
    with Scripted(lambda *_: answer) as server:
        url = secret("url", f"{server.url}/services/{CANARY}?q={CANARY}")
        found = failure(None, url_file=url, token_file=secret("token", CANARY))
    assert CANARY.casefold() not in str(found).casefold()
    assert str(url) in found.reason
    assert server.url not in found.reason


def test_a_secret_address_is_shown_by_nothing(secret, tmp_path):
    said = []
    for url in (
        f"http://127.0.0.1:{free_port()}/{CANARY}",
        f"http://{CANARY}.invalid/x",
        f"http://me:{CANARY}@127.0.0.1/",
        f"ftp://127.0.0.1/{CANARY}",
        f"http://127.0.0.1:{CANARY}/",
        f"http://[{CANARY}/",
        f"http://{CANARY * 9}/",
        f"http://127.0.0.1/a b/{CANARY}",
        f"http://127.0.0.1/{CANARY}ü",
        f"{CANARY}\nX-Other: 1",
        "",
    ):
        found = failure(None, url_file=secret("url", url))
        assert str(tmp_path / "url") in found.reason
        sender = webhook(url_file=tmp_path / "url", token_file=tmp_path / "url")
        said += [str(found), repr(found), repr(sender), repr(vars(sender)), *sender.problems()]
    assert CANARY not in "\n".join(said)


@pytest.mark.parametrize("key", ["token_file", "key_file"])
@pytest.mark.parametrize("content", [b"", b" \n", b"c4nary\nX: 1", b"c4nary\x00", b"c4nary\xff"])
def test_a_secret_that_no_header_may_hold_is_sent_nowhere(key, content, tmp_path):
    (tmp_path / "secret").write_bytes(content)
    with Scripted(lambda *_: (204, {}, b"")) as server:
        found = failure(server.url, **{key: tmp_path / "secret"})
    assert server.requests == []
    assert isinstance(found, Misconfigured)
    assert "c4nary" not in found.reason


def test_secrets_may_be_credentials_of_systemd(tmp_path):
    with Scripted(lambda *_: (204, {}, b"")) as server:
        (tmp_path / "address").write_text(f"{server.url}/{CANARY}\n")
        (tmp_path / "pass").write_text("t0k3n")
        given = {"url_credential": "address", "token_credential": "pass"}
        webhook(credentials=tmp_path, **given).send([incident()], NOW_NS)
        with pytest.raises(Misconfigured, match="LoadCredential"):
            webhook(credentials=None, **given).send([incident()], NOW_NS)
    ((_, path, headers, _),) = server.requests
    assert path == f"/{CANARY}"
    assert headers["Authorization"] == "Bearer t0k3n"


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with Scripted(lambda *_: (204, {}, b"")) as server:
        webhook(server.url).send([incident()], NOW_NS)
    assert len(server.requests) == 1
