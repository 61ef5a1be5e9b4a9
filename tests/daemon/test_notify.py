"""Notifications to systemd, received on a socket in its place."""

import os
import socket
from functools import partial
from types import SimpleNamespace

import pytest
from costprobe.daemon.main import Service
from costprobe.daemon.systemd import SystemdNotifier
from fakes.clock import FakeClock


class Systemd:
    """The other end of the socket.

    Args:
        address: The address that it listens on.
    """

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.received = []

    def listen(self):
        """Return all messages received so far."""
        self._socket.setblocking(False)
        while True:
            try:
                self.received.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self.received

    def close(self):
        self._socket.close()


@pytest.fixture
def systemd(tmp_path):
    listening = Systemd(str(tmp_path / "notify"))
    yield listening
    listening.close()


@pytest.mark.parametrize("address", ["/notify", "@costprobe"])
def test_ready_reloading_and_stopping_are_sent(tmp_path, address):
    systemd = Systemd(f"{tmp_path}{address}" if address[0] == "/" else f"{address}-{os.getpid()}")
    clock = FakeClock()
    notifier = SystemdNotifier(systemd.address, 30.0, clock)
    notifier.ready("measuring\n2 devices")
    notifier.reloading()
    notifier.stopping()
    assert systemd.listen() == [
        "READY=1\nSTATUS=measuring 2 devices",
        f"RELOADING=1\nMONOTONIC_USEC={clock.monotonic_ns() // 1000}",
        "STOPPING=1",
    ]
    systemd.close()


def test_watchdog_is_notified_three_times_an_interval(systemd):
    clock = FakeClock()
    notifier = SystemdNotifier(systemd.address, 30.0, clock)
    for _ in range(61):
        notifier.alive()
        clock.move(1)
    assert systemd.listen() == ["WATCHDOG=1"] * 7
    # The daemon checks its threads at least this often.
    assert notifier.feed_every_s == 10.0
    assert SystemdNotifier(systemd.address, None, clock).feed_every_s is None


def test_without_systemd_nothing_is_sent_and_a_missing_socket_is_logged_once(tmp_path, caplog):
    silent = SystemdNotifier("", None, FakeClock())
    silent.alive()
    silent.stopping()
    assert caplog.records == []
    notifier = SystemdNotifier(str(tmp_path / "gone"), 30.0, FakeClock())
    for _ in range(3):
        notifier.ready("x")
    assert [record.message for record in caplog.records] == [
        "no notification to systemd: [Errno 2] No such file or directory"
    ]


def test_systemds_variables_are_removed_from_the_environment():
    clock = FakeClock()
    own = {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    environ = {**own, "PATH": "/bin"}
    SystemdNotifier.taken_from(environ, clock)
    assert environ == {"PATH": "/bin"}
    for odd in ({"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, {}):
        SystemdNotifier.taken_from(dict(odd), clock).alive()


def test_dead_part_stops_the_watchdog_and_is_reported(systemd):
    clock = FakeClock()
    lives = {"sensors": True, "sink influxdb": True}
    notifier = SystemdNotifier(systemd.address, 3.0, clock)
    service = SimpleNamespace(_dead=(), _liveness=lambda: lives, _notifier=notifier)
    beat = partial(Service._beat, service)  # noqa: SLF001 - without the store of a whole process
    beat()
    lives["sink influxdb"] = False
    for _ in range(5):
        clock.move(1)
        beat()
    assert systemd.listen() == ["WATCHDOG=1", "STATUS=dead parts: sink influxdb"]
    lives["sink influxdb"] = True
    clock.move(1)
    beat()
    assert systemd.listen()[2:] == ["STATUS=measuring", "WATCHDOG=1"]
