"""Notifications to systemd, received on a socket in its place."""

import os
import socket
from contextlib import closing
from functools import partial
from types import SimpleNamespace

from costprobe.daemon.main import Service
from costprobe.daemon.systemd import SystemdNotifier
from fakes.clock import FakeClock


class Systemd:
    """The other end of the socket, and a notifier with a watchdog of some seconds.

    Attributes:
        received: Reads all messages that have come since the last call.
    """

    def __init__(self, address, watchdog_s=30.0):
        self.clock = FakeClock()
        self.notifier = SystemdNotifier(address, watchdog_s, self.clock)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.close = self._socket.close

    def received(self):
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found


def test_ready_reloading_and_stopping_are_sent(tmp_path):
    for address in (f"{tmp_path}/notify", f"@costprobe-{os.getpid()}"):
        with closing(Systemd(address)) as systemd:
            systemd.notifier.ready("measuring\n2 devices")
            systemd.notifier.reloading()
            systemd.notifier.stopping()
            assert systemd.received() == [
                "READY=1\nSTATUS=measuring 2 devices",
                f"RELOADING=1\nMONOTONIC_USEC={systemd.clock.monotonic_ns() // 1000}",
                "STOPPING=1",
            ]


def test_watchdog_is_notified_three_times_an_interval(tmp_path):
    with closing(Systemd(f"{tmp_path}/notify")) as systemd:
        for _ in range(61):
            systemd.notifier.alive()
            systemd.clock.move(1)
        assert systemd.received() == ["WATCHDOG=1"] * 7
        # The daemon checks its threads at least this often.
        assert systemd.notifier.feed_every_s == 10.0
    assert SystemdNotifier("", None, FakeClock()).feed_every_s is None


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


def test_dead_part_stops_the_watchdog_and_is_reported(tmp_path):
    with closing(Systemd(f"{tmp_path}/notify", 3.0)) as systemd:
        lives = {"sensors": True, "sink influxdb": True}
        parts = {"_dead": (), "_liveness": lambda: lives, "_notifier": systemd.notifier}
        # Without the store of a whole process.
        beat = partial(Service._beat, SimpleNamespace(**parts))  # noqa: SLF001 - as above
        beat()
        lives["sink influxdb"] = False
        for _ in range(5):
            systemd.clock.move(1)
            beat()
        assert systemd.received() == ["WATCHDOG=1", "STATUS=dead parts: sink influxdb"]
        lives["sink influxdb"] = True
        systemd.clock.move(1)
        beat()
        assert systemd.received() == ["STATUS=measuring", "WATCHDOG=1"]
