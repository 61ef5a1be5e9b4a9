"""What a server or a command says reaches a terminal without what a terminal obeys."""

import sys

import pytest
from fakes.incidents import incident
from fakes.servers import Scripted

from agent.config_notifier import WebhookConfig
from agent.config_price import SpotPlanConfig
from agent.feeds.source import SourceError, read_source
from agent.notifying.registry import build_sender
from agent.notifying.sender import Refused

ESCAPES = "gone\x1b[2J\x1b]0;title\x07 \x9b31m\r\n\x00there\u202e"


def test_an_answer_to_a_webhook_is_shown_in_one_printable_line():
    with Scripted(lambda *_: (400, {}, ESCAPES.encode())) as server:
        config = WebhookConfig(name="n", kind="webhook", url=server.url)
        with pytest.raises(Refused) as caught:
            build_sender(config, None).send([incident()], 1)
    assert caught.value.reason.isprintable()
    assert "there" in caught.value.reason


def test_what_a_price_command_says_is_shown_in_one_printable_line():
    program = f"import sys; sys.exit({ESCAPES!r})"
    plan = SpotPlanConfig(plan="spot", command=(sys.executable, "-c", program))
    with pytest.raises(SourceError) as caught:
        read_source(plan)
    assert str(caught.value).isprintable()
    assert "there" in str(caught.value)


def test_a_price_address_is_named_by_its_host_alone():
    plan = SpotPlanConfig(plan="spot", url="http://127.0.0.1:9?key=canary")
    with pytest.raises(SourceError) as caught:
        read_source(plan)
    assert "canary" not in str(caught.value)
    assert str(caught.value).startswith("127.0.0.1:9: ")
