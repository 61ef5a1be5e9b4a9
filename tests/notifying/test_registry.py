"""Each kind of notifier is built from its settings, and looked at before it is used."""

import subprocess
import sys

import pytest
from fakes.servers import TLS
from pydantic import TypeAdapter

from agent.config_notifier import NotifierConfig
from agent.notifying.registry import build_sender, check_notifier

CANARY = "c4nary-5ecret"
SENDERS = {
    "alertmanager": {"url": "http://127.0.0.1:9093"},
    "webhook": {"url": "https://example.org/hook"},
    "apprise": {"url_file": "/nowhere"},
}


def config_of(kind, **more):
    values = {"name": "n", "kind": kind, **SENDERS[kind], **more}
    return TypeAdapter(NotifierConfig).validate_python(values)


@pytest.mark.parametrize("kind", SENDERS)
def test_each_kind_is_built_and_closed(kind):
    sender = build_sender(config_of(kind), None)
    assert type(sender).__name__.lower() == kind
    sender.send([], 0)
    sender.close()
    sender.close()


def test_what_is_well_has_no_problems(secret):
    assert check_notifier(config_of("alertmanager")) == []
    assert check_notifier(config_of("webhook", ca_file=TLS / "server.pem")) == []
    url = secret("url", "https://example.org/hook")
    assert check_notifier(config_of("webhook", url=None, url_file=url)) == []
    assert check_notifier(config_of("apprise", url_file=secret("mail", "json://h"))) == []


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("alertmanager", {"token_file": "/nowhere"}, "/nowhere"),
        ("alertmanager", {"ca_file": "/nowhere"}, "ca_file /nowhere"),
        ("alertmanager", {"url": "http://h:port/"}, "url"),
        ("webhook", {"key_file": "/nowhere"}, "/nowhere"),
        ("webhook", {"url": "http://[x/"}, "url"),
        ("webhook", {"url": None, "url_file": "/nowhere"}, "/nowhere"),
        ("apprise", {}, "/nowhere"),
    ],
)
def test_each_problem_is_named_once(kind, more, words):
    (problem,) = check_notifier(config_of(kind, **more))
    assert words in problem


def test_an_address_in_a_file_is_looked_at_and_not_shown(secret):
    path = secret("url", f"https//{CANARY}")
    (problem,) = check_notifier(config_of("webhook", url=None, url_file=path))
    assert str(path) in problem
    assert CANARY not in problem


def test_credentials_are_looked_at_where_there_are_any(tmp_path):
    config = config_of("apprise", url_file=None, url_credential="mail")
    assert check_notifier(config) == []
    (problem,) = check_notifier(config, tmp_path)
    assert str(tmp_path / "mail") in problem


def test_the_daemon_never_loads_apprise():
    program = (
        "import sys; from agent.notifying import registry; from agent.config_notifier import *;"
        " config = AppriseConfig(name='n', kind='apprise', url_file='/nowhere');"
        " registry.check_notifier(config); registry.build_sender(config, None).close();"
        " print({'apprise', 'requests', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
