"""Sources of spot prices: files, commands and servers, also ones that hang, shout or lie."""

import os
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from fakes.inference_server import InferenceServer

from agent.config_price import SpotPlanConfig
from agent.daemon.accounts import MemoryLedger
from agent.daemon.spot_feeds import SpotFeeds
from agent.feeds.source import SourceError, read_source


def plan(**keys):
    return SpotPlanConfig.model_validate({"plan": "spot", **keys})


def command(program):
    return plan(command=[sys.executable, "-c", program])


def test_a_file_is_read_as_it_is_now(tmp_path):
    file = tmp_path / "prices.csv"
    with pytest.raises(SourceError, match=r"cannot be read \(No such file"):
        read_source(plan(file=str(file)))
    file.write_text("1.5")
    assert read_source(plan(file=str(file))) == "1.5"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match="no UTF-8"):
        read_source(plan(file=str(file)))


def test_a_command_gives_what_it_writes():
    assert read_source(command("print(0.75)")).strip() == "0.75"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit('no credentials')", "failed with code 1 (no credentials)"),
        ("import sys; sys.exit(3)", "failed with code 3 (it said nothing)"),
        ("print('x' * (2 << 20))", "more than"),
        ("import os; os.kill(os.getpid(), 9)", "failed with code -9"),
    ],
)
def test_a_command_that_fails_says_why(program, words):
    with pytest.raises(SourceError) as caught:
        read_source(command(program))
    assert words in str(caught.value)


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path):
    place = tmp_path / "child"
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(place)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(SourceError, match="took longer than 2 s"):
        read_source(command(program), timeout_s=2)
    pid = int(place.read_text())
    ends_s = time.monotonic() + 60
    while time.monotonic() < ends_s:
        try:
            # A zombie that nobody reaps is dead as well.
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                break
        except (ProcessLookupError, FileNotFoundError):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("what the command started goes on")


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(SourceError, match="cannot be started"):
        read_source(plan(command=["/nowhere/price"]))


def test_an_endpoint_is_asked_and_its_key_is_no_argument_and_in_no_error():
    def answer(call):
        if "good" in call.path:
            call.json({"price": 1.25})
        elif "moved" in call.path:
            call.whole(b"", status=302, Location="http://127.0.0.1:9/")
        elif "large" in call.path:
            call.whole(b"1" * (2 << 20))
        else:
            call.whole(b"secret-key is wrong", status=403)

    with InferenceServer(answer) as server:

        def ask(path):
            return read_source(plan(url=f"{server.url}/{path}?key=secret-key"))

        assert ask("good") == '{"price": 1.25}'
        for path, words in (("bad", "it answered 403"), ("moved", "302"), ("large", "more than")):
            with pytest.raises(SourceError) as caught:
                ask(path)
            assert words in str(caught.value)
            assert "secret" not in str(caught.value)


def test_an_endpoint_that_never_ends_is_given_up():
    with (
        InferenceServer(lambda call: call.pause(60)) as server,
        pytest.raises(SourceError, match="took longer than 1 s"),
    ):
        read_source(plan(url=server.url), timeout_s=1)


class Feeds:
    """The daemon's own feeds on a file, a fake clock and a ledger in memory."""

    def __init__(self, file):
        self.file, self.clock, self.ledger, self.events = file, FakeClock(), MemoryLedger(), []
        self.feeds = self.again()

    def again(self):
        plans = [plan(file=str(self.file), stale_after="1h")]
        return SpotFeeds(plans, self.ledger, self.clock, self.events.append)

    def price(self):
        found = self.feeds.current()["spot"].at(self.clock.time_ns())
        return found and found.value


def test_prices_are_followed_remembered_and_go_stale(tmp_path):
    bench = Feeds(tmp_path / "price")
    bench.file.write_text("2")
    bench.feeds.refresh("spot")
    bench.clock.move(600)
    bench.file.write_text("3")
    bench.feeds.refresh("spot")
    assert bench.price() == 3
    status = bench.feeds.status()["spot"]
    assert (status["per_hour"], status["stale"], status["prices"]) == ("3", False, 2)
    bench.file.unlink()
    bench.clock.move(1200)
    for _ in range(3):
        bench.feeds.refresh("spot")
    # The last known price holds, and one event tells of the source that is gone.
    assert bench.price() == 3
    assert [event.severity for event in bench.events] == ["warning"]
    assert not bench.feeds.status()["spot"]["stale"]
    bench.clock.move(3600)
    assert bench.feeds.status()["spot"]["stale"]
    bench.file.write_text("4")
    bench.feeds.refresh("spot")
    assert (bench.price(), bench.events[-1].severity) == (4, "info")
    # A start knows what was known.
    again = bench.again()
    assert again.current() == bench.feeds.current()
    assert [price.value for price in again.current()["spot"].values] == [2, 3, 4]


@pytest.mark.parametrize("starts", [False, True])
def test_a_price_of_a_calendar_that_was_ahead_is_neither_in_force_later_nor_fresh_for_ever(
    tmp_path, starts
):
    bench = Feeds(tmp_path / "price")
    bench.file.write_text("2")
    bench.feeds.refresh("spot")
    bench.clock.step(6e8)
    bench.file.write_text("3")
    bench.feeds.refresh("spot")
    assert bench.price() == 3
    bench.clock.step(-6e8)
    bench.file.unlink()
    bench.feeds = bench.again() if starts else bench.feeds
    bench.feeds.refresh("spot")
    assert bench.price() == 2
    bench.clock.move(3601)
    assert bench.feeds.status()["spot"]["stale"]
    bench.file.write_text("4")
    bench.feeds.refresh("spot")
    bench.clock.step(6e8)
    assert bench.price() == 4


def test_damaged_memories_begin_anew(tmp_path):
    bench = Feeds(tmp_path / "price")
    for document in ({"prices": [[1, "x"]], "seen_ns": 1}, {"prices": 3}, [1], {}):
        bench.ledger.put_state("spot spot", document)
        assert bench.again().current()["spot"].values == ()


def test_what_is_no_price_leaves_the_last_one(tmp_path):
    bench = Feeds(tmp_path / "price")
    bench.file.write_text("2")
    bench.feeds.refresh("spot")
    bench.file.write_text("free!")
    bench.feeds.refresh("spot")
    assert bench.price() == Decimal(2)
    assert "free!" in bench.events[0].detail
