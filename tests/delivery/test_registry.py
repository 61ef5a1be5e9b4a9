"""Each kind of notifier is built from its section and validated before use."""

from costprobe.configuration import AnyNotifier
from costprobe.delivery.kinds import check_notifier
from pydantic import TypeAdapter

SENDERS = {
    "alertmanager": {"url": "http://127.0.0.1:9093"},
    "webhook": {"url": "https://example.org/hook"},
    "apprise": {"url": "file:/nowhere"},
}


def config_of(kind, **more):
    values = {"name": "n", "kind": kind, **SENDERS[kind], **more}
    return TypeAdapter(AnyNotifier).validate_python(values)


def test_each_problem_is_reported_once():
    for kind, more, words in (
        ("alertmanager", {"token": "file:/nowhere"}, "/nowhere"),
        ("alertmanager", {"ca_file": "/nowhere"}, "ca_file /nowhere"),
        ("webhook", {"key": "file:/nowhere"}, "/nowhere"),
        ("webhook", {"url": "file:/nowhere"}, "/nowhere"),
        ("apprise", {}, "/nowhere"),
    ):
        (problem,) = check_notifier(config_of(kind, **more))
        assert words in problem


def test_credentials_are_checked_if_there_are_any(tmp_path, monkeypatch):
    config = config_of("apprise", url="credential:mail")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert check_notifier(config) == []
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (problem,) = check_notifier(config)
    assert str(tmp_path / "mail") in problem
