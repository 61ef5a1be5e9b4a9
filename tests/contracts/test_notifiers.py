"""The contract of notifiers (docs/contributing/kinds.md), on every notifier."""

import itertools
import threading

import pytest
from contracts.examples.ntfy import Ntfy, NtfyConfig
from contracts.notifier_cases import CANARY, CASES
from costprobe.adapters.http.errors import DeliveryError, RetryLater
from costprobe.delivery.contract import Notifier, NotifierConfig
from costprobe.delivery.kinds import NOTIFIERS, NotifierKind
from fakes.incidents import SINCE_NS, incident, symptom
from fakes.servers import Scripted, Talking, free_port

ACCEPTED = (200, {}, b"{}")
# The table with the example of contributors.
KINDS = {**NOTIFIERS, "ntfy": NotifierKind(NtfyConfig, Ntfy)}
ODD_TEXTS = ("", "\x00\x1b[31m", "\ud800", "a\r\nX-Header: b", "ü" * 5000, '"\\{}', "<b>&amp;")


@pytest.fixture(params=sorted(CASES))
def build(request, tmp_path):
    """Return a factory of notifiers that send to a URL; all are closed at the end."""
    case, kind, built = CASES[request.param], KINDS[request.param], []
    numbers = itertools.count()

    def secret(text):
        path = tmp_path / f"secret{next(numbers)}"
        path.write_text(text)
        return path

    def make(url, *, is_secret=False, timeout="20s"):
        keys = (case.secret_keys if is_secret else case.keys)(url, secret)
        section = {"name": "n", "kind": request.param, "timeout": timeout, **keys}
        built.append(kind.build(kind.config.model_validate(section)))
        return built[-1]

    # Apprise starts a child before it connects.
    make.hang_timeout = "1500ms" if request.param == "apprise" else "300ms"
    make.secrets = lambda: sorted(tmp_path.glob("secret*"))
    yield make
    for notifier in built:
        notifier.close()


def failure(notifier):
    with pytest.raises(DeliveryError) as caught:
        notifier.send([incident()], SINCE_NS)
    assert caught.value.reason
    assert caught.value.reason.isprintable()
    return caught.value


def test_every_kind_of_the_table_takes_part_and_its_section_has_its_name():
    assert set(CASES) == set(KINDS)
    for name, kind in KINDS.items():
        assert issubclass(kind.config, NotifierConfig)
        assert kind.config.model_fields["kind"].annotation.__args__ == (name,)
        assert issubclass(kind.build, Notifier)
        undocumented = [n for n, f in kind.config.model_fields.items() if not f.description]
        assert undocumented == [], name


def test_alerts_of_one_send_arrive_and_pending_ones_do_not(build):
    with Scripted(lambda *_: ACCEPTED) as server:
        notifier = build(server.url)
        notifier.send([], SINCE_NS)
        notifier.send([incident(id="p", state="pending", fired_ns=None)], SINCE_NS)
        assert server.requests == []
        ended = incident(id="id-b", state="resolved", ended_ns=SINCE_NS + 90 * 10**9)
        notifier.send([incident(id="id-a"), incident(id="p", state="pending"), ended], SINCE_NS)
    sent = b"".join(body for *_, body in server.requests)
    assert 0 < sent.find(b"id-a") < sent.find(b"id-b")
    assert b"slower because it throttles" in sent


def test_further_headers_of_http_notifiers(tmp_path):
    """A gateway's, such as Mimir's X-Scope-OrgID; a webhook's own key signs its messages."""
    file = tmp_path / "key"
    file.write_text(f"{CANARY}\n")
    key = {"key": f"file:{file}", "key_header": "X-Gateway-Key"}
    sent = {"X-Scope-OrgID": "ml"}
    for name, more in (("webhook", {}), ("alertmanager", key)):
        section = {"name": "n", "kind": name, "headers": {"X-Scope-OrgID": "ml"}, **more}
        sent |= {"X-Gateway-Key": CANARY} if more else {}
        validate = KINDS[name].config.model_validate
        with Scripted(lambda *_: ACCEPTED) as server:
            notifier = KINDS[name].build(validate({**section, "url": server.url}))
            notifier.send([incident()], SINCE_NS)
            assert notifier.problems() == []
        ((_, _, found, _),) = server.requests
        assert sent.items() <= found.items(), name
        with pytest.raises(ValueError, match=r"headers.Host: host is set by costprobe"):
            validate({**section, "url": "http://h", "headers": {"Host": "other"}})
    file.unlink()
    assert "cannot be read" in notifier.problems()[0]
    notifier.close()


def test_any_text_is_accepted(build):
    with Scripted(lambda *_: ACCEPTED) as server:
        notifier = build(server.url)
        odd = "".join(ODD_TEXTS)
        labels = {"host": odd, odd: "named"}
        alert = incident(name=odd, summary=odd, cause=odd, labels=labels)
        notifier.send([alert], SINCE_NS)
        notifier.send([incident(symptoms=(symptom(text=odd),) * 300)], SINCE_NS)
        notifier.send([incident(symptoms=(), labels={}, name="", summary="")], SINCE_NS)
    assert len(server.requests) == 3
    assert all("X-Header" not in headers for _, _, headers, _ in server.requests)


def test_unreachable_and_overloaded_receivers_are_retried(build):
    assert isinstance(failure(build(f"http://127.0.0.1:{free_port()}")), RetryLater)
    with Scripted(lambda *_: (503, {}, b"later")) as server:
        assert isinstance(failure(build(server.url)), RetryLater)


def test_hanging_receiver_is_retried_after_the_timeout(build):
    release = threading.Event()

    def talk(connection):
        connection.recv(65536)
        release.wait(20)

    with Talking(talk) as server:
        found = failure(build(server.url, timeout=build.hang_timeout))
        release.set()
    assert isinstance(found, RetryLater)


def test_no_error_and_no_repr_contains_a_secret_that_the_receiver_quotes(build):
    def answer(_method, path, headers, _body):
        return 404, {}, f"{path} {headers.get('Authorization')} is unknown".encode()

    with Scripted(answer) as server:
        notifier = build(server.url, is_secret=True)
        error = failure(notifier)
    assert any(CANARY in f"{path} {headers}" for _, path, headers, _ in server.requests)
    shown = f"{error!r} {error.__cause__!r} {notifier!r} {vars(notifier)} {notifier.problems()}"
    assert CANARY not in shown


def test_secret_is_read_by_each_send_and_not_by_the_constructor(build):
    with Scripted(lambda *_: ACCEPTED) as server:
        notifier = build(server.url, is_secret=True)
        (path,) = build.secrets()
        content = path.read_text()
        path.unlink()
        assert str(path) in failure(notifier).reason
        assert any(str(path) in problem for problem in notifier.problems())
        path.write_text(content)
        notifier.send([incident()], SINCE_NS)
        assert notifier.problems() == []
    assert len(server.requests) == 1


def test_close_may_come_first_and_twice(build):
    notifier = build(f"http://127.0.0.1:{free_port()}")
    notifier.close()
    notifier.close()
    assert notifier.problems() == []
