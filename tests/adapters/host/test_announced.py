"""Which daemon of a host comes first, and what the others see of it."""

import os
import socket

from costprobe.adapters.host.announced import SCOPE_VARIABLE, Announcement, Daemon, first_of
from costprobe.core.config.location import SYSTEM_STORE

SERVICE = {0, 990}
NOBODY = 65534


def daemon(pid, uid, started_ns, store="/x/costprobe.db"):
    return Daemon(pid, uid, started_ns, str(store), frozenset({"GPU-1"}))


def test_service_comes_first_then_the_daemon_that_started_first():
    service = daemon(1, 990, 50, SYSTEM_STORE)
    of_root, early, late = daemon(2, 0, 10), daemon(3, 1000, 1), daemon(4, 1000, 2)
    every = [late, early, of_root, service]
    assert [first_of(each, every, SERVICE) for each in (service, of_root, early, late)] == [
        [],
        [service],
        [service, of_root],
        [service, of_root, early],
    ]


def test_daemons_see_each_other_until_they_end(tmp_path):
    scope = {SCOPE_VARIABLE: str(tmp_path)[-60:]}

    def announcing(started_ns, service_uids):
        found = Announcement(tmp_path / f"{started_ns}.db", started_ns, service_uids, scope)
        found.open()
        return found

    first, second = announcing(1, {os.geteuid()}), announcing(2, {os.geteuid()})
    foreign = Announcement(tmp_path / "4.db", 4, {NOBODY}, scope)
    try:
        assert first.billed_elsewhere(["GPU-1", "GPU-2"]) == {}
        (found,) = second.billed_elsewhere(["GPU-2", "GPU-3"]).items()
        assert (found[0], found[1].pid, found[1].uid) == ("GPU-2", os.getpid(), os.geteuid())
        assert found[1].store == str(tmp_path / "1.db")
        assert set(foreign.billed_elsewhere(["GPU-1", "GPU-3", "GPU-4"])) == {"GPU-1", "GPU-3"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
            mute.bind(f"\0costprobe {scope[SCOPE_VARIABLE]} mute")
            mute.listen()
            assert second.billed_elsewhere(["GPU-2"]) != {}
        first.close()
        assert second.billed_elsewhere(["GPU-2"]) == {}
    finally:
        for each in (first, second):
            each.close()
