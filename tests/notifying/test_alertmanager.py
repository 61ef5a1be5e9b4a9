"""A real Alertmanager lists what fires and drops what has ended."""

import base64
import json
import time
from datetime import datetime

import pytest
from fakes.incidents import NS_PER_S, SINCE_NS, incident, symptom
from fakes.servers import TLS, Scripted, Talking, free_port

from agent.config_notifier import AlertmanagerConfig
from agent.notifying.alertmanager import Alertmanager, to_documents
from agent.notifying.sender import Misconfigured, Refused, RetryLater
from agent.notifying.wording import MAX_SYMPTOMS

CANARY = "c4nary-5ecret"
LASTS_NS = 240 * NS_PER_S


def sender_of(url, credentials=None, **more):
    more = {"timeout": "5s"} | more
    return Alertmanager(
        AlertmanagerConfig(name="am", kind="alertmanager", url=url, **more), credentials
    )


def now(host, **more):
    """An incident of now, of a host that no other test has."""
    since_ns = time.time_ns() - 60 * NS_PER_S
    known = {"labels": {"host": host, "device": "gpu0"}, "since_ns": since_ns, "fired_ns": since_ns}
    return incident(**(known | more))


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def test_what_fires_is_listed_with_its_labels(alertmanager):
    alert = now("listed", labels={"host": "listed", "gpu-type.2": "H200", "empty": "", "7x": "y"})
    sender = sender_of(alertmanager.url + "/", generator_url="http://node7:9000/alerts")
    sender.send([alert], time.time_ns())
    (found,) = alertmanager.active(host="listed")
    assert found["labels"] == {
        "alertname": "drift",
        "severity": "warning",
        "host": "listed",
        "gpu_type_2": "H200",
        "_7x": "y",
    }
    assert found["annotations"] == {
        "summary": "gpu0 is slower because it throttles",
        "description": "+7.2 % since 14:05: SM clock 1980 → 1815 MHz\n+5 % energy",
        "cause": "thermal throttling",
        "id": "3f2a-1",
    }
    assert found["generatorURL"] == "http://node7:9000/alerts"
    assert found["status"]["state"] == "active"
    assert seconds(found["startsAt"]) == pytest.approx(alert.fired_ns / NS_PER_S, abs=0.002)


def test_what_is_told_again_lasts_longer_and_without_it_ends(alertmanager):
    sender, alert, now_ns = sender_of(alertmanager.url), now("again"), time.time_ns()
    sender.send([alert], now_ns)
    (first,) = alertmanager.active(host="again")
    assert seconds(first["endsAt"]) == pytest.approx(now_ns / NS_PER_S + 240, abs=0.002)
    sender.send([alert], now_ns + 60 * NS_PER_S)
    (second,) = alertmanager.active(host="again")
    assert seconds(second["endsAt"]) - seconds(first["endsAt"]) == pytest.approx(60, abs=0.002)
    assert second["fingerprint"] == first["fingerprint"]
    # Last told five minutes ago: whoever told it is dead.
    sender.send([now("dead")], now_ns - 300 * NS_PER_S)
    assert alertmanager.active(host="dead") == []


@pytest.mark.parametrize("ended_ago_s", [0, 30])
def test_what_is_resolved_is_no_longer_listed(alertmanager, ended_ago_s):
    host = f"resolved{ended_ago_s}"
    sender, alert, now_ns = sender_of(alertmanager.url), now(host), time.time_ns()
    sender.send([alert], now_ns)
    assert len(alertmanager.active(host=host)) == 1
    ended_ns = now_ns - ended_ago_s * NS_PER_S
    sender.send([now(host, state="resolved", ended_ns=ended_ns)], now_ns)
    assert alertmanager.active(host=host) == []


def test_a_rise_leaves_exactly_one(alertmanager):
    sender, now_ns = sender_of(alertmanager.url), time.time_ns()
    sender.send([now("risen", severity="info")], now_ns)
    sender.send([now("risen", severity="critical", raised_from="info")], now_ns)
    (found,) = alertmanager.active(host="risen")
    assert found["labels"]["severity"] == "critical"
    sender.send([now("risen", severity="critical", state="resolved", ended_ns=now_ns)], now_ns)
    assert alertmanager.active(host="risen") == []


def test_a_backlog_in_one_request_ends_as_it_happened(alertmanager):
    now_ns = time.time_ns()
    first = now("backlog", id="a")
    ended = now("backlog", id="a", state="resolved", ended_ns=now_ns - 30 * NS_PER_S)
    again = now("backlog", id="b", fired_ns=now_ns - 10 * NS_PER_S)
    other = now("backlog", id="c", name="other")
    sender_of(alertmanager.url).send([first, ended, again, other], now_ns)
    found = alertmanager.active(host="backlog")
    assert sorted(alert["annotations"]["id"] for alert in found) == ["b", "c"]


def test_what_is_pending_is_told_to_nobody():
    with Scripted(lambda *_: (200, {}, b"")) as server:
        sender_of(server.url).send([incident(state="pending", fired_ns=None)], SINCE_NS)
        sender_of(server.url).send([], SINCE_NS)
    assert server.requests == []


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a\nb", "ü" * 5000, '"\\', "{}=~"])
def test_it_takes_labels_of_any_text(alertmanager, text):
    mark = f"odd{abs(hash(text))}"
    odd = now("odd", labels={"mark": mark, "odd": text, text: "named so"}, name=text, summary=text)
    sender_of(alertmanager.url).send([odd], time.time_ns())
    assert len(alertmanager.active(mark=mark)) == 1


def test_what_it_refuses_is_refused_in_its_own_words(alertmanager):
    sender = sender_of(alertmanager.url)
    with pytest.raises(Refused, match="HTTP 400: at least one label pair required"):
        sender.post(b'[{"labels": {}}]', time.time_ns())
    with pytest.raises(Refused, match="HTTP 400: parsing alerts body"):
        sender.post(b"[1]", time.time_ns())


def test_a_wrong_path_is_the_operators(alertmanager):
    with pytest.raises(Misconfigured, match="404"):
        sender_of(alertmanager.url + "/elsewhere").send([now("lost")], time.time_ns())


def test_an_end_never_lies_before_the_start():
    alert = incident(state="resolved", ended_ns=SINCE_NS)
    (document,) = to_documents(alert, SINCE_NS, LASTS_NS)
    assert document["startsAt"] == document["endsAt"] == "2026-05-28T20:27:40.123456789Z"
    old, new = to_documents(
        incident(severity="critical", raised_from="warning"), SINCE_NS - NS_PER_S, LASTS_NS
    )
    assert old["startsAt"] == old["endsAt"]
    assert new["endsAt"] == "2026-05-28T20:30:39.123456789Z"


def test_of_two_names_that_become_one_the_fit_one_stays():
    alert = incident(labels={"a-b": "1", "a_b": "2", "severity": "none", "alertname": "x"})
    (document,) = to_documents(alert, SINCE_NS, LASTS_NS)
    assert document["labels"] == {"alertname": "drift", "severity": "warning", "a_b": "2"}


def test_a_thousand_symptoms_are_told_in_short():
    alert = incident(symptoms=(symptom(text="long\n" * 1000),) * 1000, is_flapping=True)
    (document,) = to_documents(alert, SINCE_NS, LASTS_NS)
    lines = document["annotations"]["description"].split("\n")
    assert len(lines) == MAX_SYMPTOMS + 1
    assert lines[-1] == "and 950 more"
    assert max(map(len, lines)) == 500
    assert "comes and goes" in document["annotations"]["flapping"]


@pytest.mark.parametrize(
    ("status", "headers", "error", "after_s"),
    [
        (500, {}, RetryLater, None),
        (503, {"Retry-After": "7"}, RetryLater, 7),
        (429, {"Retry-After": "Thu, 28 May 2026 20:27:00 GMT"}, RetryLater, 19.876543211),
        (400, {}, Refused, None),
        (413, {}, Refused, None),
        (422, {}, Refused, None),
        (401, {}, Misconfigured, None),
        (301, {"Location": "http://127.0.0.1:9/"}, Misconfigured, None),
        (200, {"Content-Type": "text/html; charset=utf-8"}, Misconfigured, None),
    ],
)
def test_each_answer_asks_one_thing(status, headers, error, after_s):
    page = b"<html>Please log in</html>"
    with Scripted(lambda *_: (status, headers, page)) as server, pytest.raises(error) as caught:
        sender_of(server.url).send([incident()], SINCE_NS)
    assert getattr(caught.value, "after_s", None) == pytest.approx(after_s)


@pytest.mark.parametrize(
    "said", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]
)
def test_what_is_no_whole_answer_is_tried_again(said):
    def talk(connection):
        connection.recv(65536)
        connection.sendall(said)

    with Talking(talk) as server, pytest.raises(RetryLater):
        sender_of(server.url).send([incident()], SINCE_NS)


def test_a_server_that_is_away_or_hangs_is_tried_again():
    with pytest.raises(RetryLater, match="refused"):
        sender_of(f"http://127.0.0.1:{free_port()}").send([incident()], SINCE_NS)

    def talk(connection):
        while connection.recv(65536):
            pass

    with Talking(talk) as server, pytest.raises(RetryLater, match=r"within 0\.2 s"):
        sender_of(server.url, timeout="200ms").send([incident()], SINCE_NS)


def test_over_tls_only_a_server_that_is_vouched_for_is_told():
    with Scripted(lambda *_: (200, {}, b""), tls=True) as server:
        with pytest.raises(Misconfigured, match="ca_file"):
            sender_of(server.url).send([incident()], SINCE_NS)
        assert server.requests == []
        sender_of(server.url, ca_file=TLS / "server.pem").send([incident()], SINCE_NS)
    ((_, path, _, _),) = server.requests
    assert path == "/api/v2/alerts"


def test_a_user_or_a_token_is_told_to_it_and_to_nobody_else(secret, tmp_path):
    path = secret("pass", f"{CANARY}ü")
    pair = base64.b64encode(f"me:{CANARY}ü".encode()).decode()

    def answer(_method, _path, headers, _body):
        return 403, {}, json.dumps({"error": f"{headers['Authorization']} is unknown"}).encode()

    with Scripted(answer) as server:
        for given in (
            {"user": "me", "password_file": path},
            {"user": "me", "password_credential": "pass"},
            {"token_file": secret("token", CANARY)},
            {"token_credential": "token"},
            {"token_file": path},
        ):
            sender = sender_of(server.url, tmp_path, **given)
            with pytest.raises(Misconfigured) as caught:
                sender.send([incident()], SINCE_NS)
            said = f"{caught.value!r} {caught.value} {vars(sender)} {sender.problems()}"
            assert CANARY not in said
            assert pair not in said
    sent = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert sent == [f"Basic {pair}"] * 2 + [f"Bearer {CANARY}"] * 2
