"""A webhook receives documented, signed JSON; no error shows a secret."""

import hashlib
import hmac
import json
import re
from pathlib import Path

import pytest
from costprobe import __version__
from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater
from costprobe.delivery.webhook import MAX_SYMPTOMS, Webhook, WebhookConfig
from fakes.documents import checked
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.servers import Scripted, free_port
from record.record_files import check

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "webhook.md").read_text()
NOW_NS = SINCE_NS + 120 * NS_PER_S
CANARY = "c4nary-5ecret"


def webhook(url, **more):
    return Webhook(WebhookConfig(name="ops", kind="webhook", url=url, **{"timeout": "5s"} | more))


def sent_request(alert, **more):
    """Send an alert and return the headers and body of the only request."""
    with Scripted(lambda *_: (202, {}, b"")) as server:
        webhook(server.url + "/hook?team=7", **more).send([alert], NOW_NS)
    ((method, path, headers, body),) = server.requests
    assert (method, path) == ("POST", "/hook?team=7")
    return headers, body


def failure(url, **more):
    with pytest.raises((RetryLater, Rejected, Misconfigured)) as caught:
        webhook(url, **more).send([incident()], NOW_NS)
    assert len(caught.value.reason) < 600
    assert CANARY not in repr(caught.value.__cause__)
    return caught.value


def test_sent_document_matches_the_schema():
    for alert in (
        incident(),
        incident(state="resolved", ended_ns=NOW_NS),
        incident(severity="critical", raised_from="warning", is_flapping=True),
        incident(labels={}, symptoms=(), cause="", is_test=True),
        incident(symptoms=(symptom(value=float("nan"), threshold=float("inf")),)),
        incident(symptoms=(symptom(),) * (MAX_SYMPTOMS + 3), summary="Lüfter\n\ud800"),
    ):
        _, body = sent_request(alert)
        checked("webhook", body.decode())


def test_sent_document_contains_the_whole_alert():
    alert = incident(
        state="resolved", severity="critical", raised_from="warning", ended_ns=NOW_NS, is_test=True
    )
    headers, body = sent_request(alert)
    document = json.loads(body)
    check("webhook_document.json", document)
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"costprobe/{__version__}"
    assert headers["Idempotency-Key"] == "3f2a-1:resolved:critical"
    assert "X-Costprobe-Signature" not in headers
    assert "Authorization" not in headers


def test_example_of_the_documentation_is_what_is_sent():
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert checked("webhook", json.dumps(example)) == example
    _, body = sent_request(incident(symptoms=(symptom(),)))
    assert json.loads(body) == {**example, "sent_at": "2026-05-28T20:28:40.123456789Z"}


def test_documented_code_verifies_the_signature(secret):
    key = secret("key", f"{CANARY}\n")
    headers, body = sent_request(incident(), key=f"file:{key}")
    found = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], found)  # noqa: S102 - the code that the page shows
    header, now_s = headers["X-Costprobe-Signature"], NOW_NS / NS_PER_S
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


def test_secret_url_is_never_shown(secret, tmp_path):
    shown = []
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
        found = failure(f"file:{secret('url', url)}")
        assert str(tmp_path / "url") in found.reason
        sender = webhook(f"file:{tmp_path}/url", token=f"file:{tmp_path}/url")
        shown += [str(found), repr(found), repr(sender), repr(vars(sender)), *sender.problems()]
    assert CANARY not in "\n".join(shown)
