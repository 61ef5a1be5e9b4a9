"""What of a notifier's section cannot be used is found before it is."""

from costprobe.configuration import AnyNotifier
from costprobe.delivery.kinds import check_notifier
from fakes.cases import check_all
from pydantic import TypeAdapter


def problems(kind, url, **more):
    section = {"name": "n", "kind": kind, "url": url, **more}
    return check_notifier(TypeAdapter(AnyNotifier).validate_python(section))


def test_each_problem_is_reported_once():
    def check(kind, url, **more):
        (problem,) = problems(kind, url, **more)
        assert "/nowhere" in problem

    here, hook, none = "http://127.0.0.1:9093", "https://example.org/hook", "file:/nowhere"
    check("alertmanager", here, token=none)
    check("alertmanager", here, ca_file="/nowhere")
    check("webhook", hook, key=none)
    check_all(check, [("webhook", none), ("apprise", none)])


def test_credentials_are_checked_if_there_are_any(tmp_path, monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert problems("apprise", "credential:mail") == []
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (problem,) = problems("apprise", "credential:mail")
    assert str(tmp_path / "mail") in problem
