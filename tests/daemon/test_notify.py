"""What systemd is told: on a socket that stands where systemd's would."""

import os
import signal
import socket
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from fakes.processes import children_of
from fakes.scenes import QUICK

from agent.daemon.liveness import Heart
from agent.daemon.notify import Notifier


class Systemd:
    """The other end of the socket.

    Args:
        address: Where it listens.
    """

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.heard = []

    def listen(self):
        """All that was said so far."""
        self._socket.setblocking(False)
        while True:
            try:
                self.heard.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self.heard

    def close(self):
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    address = str(tmp_path / "notify") if request.param == "path" else f"@infercost-{os.getpid()}"
    listening = Systemd(address)
    yield listening
    listening.close()


def test_the_life_of_a_daemon(systemd):
    clock = FakeClock()
    notifier = Notifier(systemd.address, 30.0, clock)
    notifier.ready("measuring\n2 devices")
    notifier.reloading()
    notifier.stopping()
    assert systemd.listen() == [
        "READY=1\nSTATUS=measuring 2 devices",
        f"RELOADING=1\nMONOTONIC_USEC={clock.monotonic_ns() // 1000}",
        "STOPPING=1",
    ]


def test_the_watchdog_is_fed_three_times_an_interval_and_no_more(systemd):
    clock = FakeClock()
    notifier = Notifier(systemd.address, 30.0, clock)
    for _ in range(61):
        notifier.alive()
        clock.move(1)
    assert systemd.listen() == ["WATCHDOG=1"] * 7
    # The daemon looks at its parts at least so often.
    assert notifier.feed_every_s == 10.0
    assert Notifier(systemd.address, None, clock).feed_every_s is None


def test_without_systemd_nobody_is_told():
    clock = FakeClock()
    notifier = Notifier("", None, clock)
    notifier.ready("x")
    notifier.alive()
    notifier.stopping()


def test_a_socket_that_is_gone_stops_nothing(tmp_path, caplog):
    notifier = Notifier(str(tmp_path / "gone"), 30.0, FakeClock())
    for _ in range(3):
        notifier.ready("x")
    assert [record.message for record in caplog.records] == [
        "systemd cannot be told: [Errno 2] No such file or directory"
    ]


def test_the_environment_is_taken_and_not_left_to_children():
    clock = FakeClock()
    environ = {
        "NOTIFY_SOCKET": "/s",
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
        "PATH": "/bin",
    }
    Notifier.taken_from(environ, clock)
    assert environ == {"PATH": "/bin"}
    for odd in ({"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, {}):
        Notifier.taken_from(dict(odd), clock).alive()


def test_a_dead_part_starves_the_watchdog_and_is_named(systemd):
    clock = FakeClock()
    lives = {"sensors": True, "sink influxdb": True}
    heart = Heart(Notifier(systemd.address, 3.0, clock), lambda: lives)
    heart.beat()
    lives["sink influxdb"] = False
    for _ in range(5):
        clock.move(1)
        heart.beat()
    assert heart.dead == ("sink influxdb",)
    assert systemd.listen() == ["WATCHDOG=1", "STATUS=dead parts: sink influxdb"]
    lives["sink influxdb"] = True
    clock.move(1)
    heart.beat()
    assert systemd.listen()[2:] == ["STATUS=measuring", "WATCHDOG=1"]


def test_a_real_daemon_says_when_it_is_ready_reloads_lives_and_stops(daemon_in, tmp_path):
    listening = Systemd(str(tmp_path / "notify"))
    daemon = daemon_in(NOTIFY_SOCKET=listening.address, WATCHDOG_USEC="3000000")
    try:
        daemon.start(QUICK)
        daemon.wait_for(lambda: listening.listen().count("WATCHDOG=1") >= 2)
        assert listening.heard[0].startswith("READY=1")
        assert any("STATUS=measuring 1 devices with 0 probes" in said for said in listening.heard)
        daemon.signal(signal.SIGHUP)

        def reloaded():
            said = listening.listen()
            begins = [i for i, text in enumerate(said) if text.startswith("RELOADING=1")]
            return begins and any(text.startswith("READY=1") for text in said[begins[0] :])

        daemon.wait_for(reloaded)
        daemon.stop()
        assert listening.listen()[-1] == "STOPPING=1"
    finally:
        listening.close()


def test_children_do_not_inherit_the_way_to_systemd(daemon_in, tmp_path):
    listening = Systemd(str(tmp_path / "notify"))
    daemon = daemon_in(NOTIFY_SOCKET=listening.address, WATCHDOG_USEC="3000000")
    try:
        daemon.start(QUICK)
        (child,) = daemon.wait_for(lambda: children_of(daemon.pid))
        assert b"NOTIFY_SOCKET" not in Path(f"/proc/{child}/environ").read_bytes()
    finally:
        daemon.stop()
        listening.close()
