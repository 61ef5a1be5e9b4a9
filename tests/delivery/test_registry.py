"""Each kind of notifier is built from its section and validated before use."""

import subprocess
import sys

from costprobe.configuration import AnyNotifier
from costprobe.delivery.kinds import check_notifier
from fakes.servers import TLS
from pydantic import TypeAdapter

CANARY = "c4nary-5ecret"
SENDERS = {
    "alertmanager": {"url": "http://127.0.0.1:9093"},
    "webhook": {"url": "https://example.org/hook"},
    "apprise": {"url": "file:/nowhere"},
}


def config_of(kind, **more):
    values = {"name": "n", "kind": kind, **SENDERS[kind], **more}
    return TypeAdapter(AnyNotifier).validate_python(values)


def test_valid_sections_have_no_problems(secret):
    assert check_notifier(config_of("alertmanager")) == []
    assert check_notifier(config_of("webhook", ca_file=TLS / "server.pem")) == []
    url = secret("url", "https://example.org/hook")
    assert check_notifier(config_of("webhook", url=f"file:{url}")) == []
    assert check_notifier(config_of("apprise", url=f"file:{secret('mail', 'json://h')}")) == []


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


def test_invalid_url_in_a_file_is_reported_without_its_content(secret):
    path = secret("url", f"https//{CANARY}")
    (problem,) = check_notifier(config_of("webhook", url=f"file:{path}"))
    assert str(path) in problem
    assert CANARY not in problem


def test_credentials_are_checked_if_there_are_any(tmp_path, monkeypatch):
    config = config_of("apprise", url="credential:mail")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert check_notifier(config) == []
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (problem,) = check_notifier(config)
    assert str(tmp_path / "mail") in problem


def test_http_is_loaded_by_the_first_request_and_apprise_never():
    """A daemon that sends no request does not import the HTTP libraries."""
    program = (
        "import sys; from costprobe.configuration import Config;"
        " from costprobe.delivery.apprise import Apprise, AppriseConfig;"
        " config = AppriseConfig(name='n', kind='apprise', url='file:/nowhere');"
        " Apprise(config).problems();"
        " import costprobe.delivery.loop, costprobe.serving.service;"
        " heavy = {'apprise', 'requests', 'yaml', 'urllib3', 'http.client', 'prometheus_client'};"
        " print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
