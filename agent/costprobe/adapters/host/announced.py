"""The daemons of one host: each announces its devices, so that only one of them bills a device.

An announcement is a Unix socket in the abstract namespace: it needs no folder, ends with its process,
and the kernel states whose it is. Names are listed in /proc/net/unix, and a daemon's own name is
random: no user can take the name of another's. The service comes first, whatever others
announce: its daemon reads only the announcements of root and of its own user.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import secrets
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from costprobe.core.config.location import SYSTEM_STORE
from costprobe.core.outside import SHAPE_ERRORS, bounded_object, one_line

logger = logging.getLogger(__name__)

# Daemons with the same value see each other; tests have one each.
SCOPE_VARIABLE: Final = "COSTPROBE_SCOPE"
NAMES_MAX: Final = 1000
READ_MAX: Final = 16
STORE_CHARS: Final = 200
ANSWER_BYTES: Final = 1 << 16
TIMEOUT_S: Final = 0.2
_CREDENTIALS: Final = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that announces its devices.

    Attributes:
        pid: Its process, by the kernel.
        uid: Its user, by the kernel.
        started_ns: CLOCK_MONOTONIC ns of its start.
        store: Its store.
        devices: UUIDs of the devices that it found.
    """

    pid: int
    uid: int
    started_ns: int
    store: str
    devices: frozenset[str]

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}, store {self.store}"


def service_users(names: Iterable[str]) -> frozenset[int]:
    """Return the user ids of root and of the service's accounts that exist."""
    uids = {0}
    for name in names:
        with suppress(KeyError):
            uids.add(pwd.getpwnam(name).pw_uid)
    return frozenset(uids)


def first_of(
    daemon: Daemon, others: Iterable[Daemon], service_uids: Collection[int]
) -> list[Daemon]:
    """Return the other daemons that come before this one, the first one first.

    The service comes first: a daemon of root or of the service's user, with the service's store
    before one with another; else the daemon that started first.

    Args:
        daemon: This daemon.
        others: The others.
        service_uids: Users of the service.
    """

    def order(each: Daemon) -> tuple[bool, bool, int, int]:
        is_ordinary, is_own = each.uid not in service_uids, each.store != str(SYSTEM_STORE)
        return (is_ordinary, is_own, each.started_ns, each.pid)

    return sorted((other for other in others if order(other) < order(daemon)), key=order)


class Announcement:
    """Announces this daemon's devices, and reads the announcements of others.

    Args:
        store: The store of this daemon.
        started_ns: CLOCK_MONOTONIC ns of its start.
        service_uids: Users of the service.
        environ: The environment.
    """

    def __init__(
        self,
        store: Path,
        started_ns: int,
        service_uids: Collection[int],
        environ: Mapping[str, str],
    ) -> None:
        self._own = Daemon(os.getpid(), os.geteuid(), started_ns, str(store), frozenset())
        self._devices: Sequence[str] = ()
        self._service_uids = frozenset(service_uids)
        self._prefix = f"@costprobe {environ.get(SCOPE_VARIABLE, '')} "
        self._name = f"{self._prefix}{secrets.token_hex(8)}"
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Begin to announce; without a network namespace of its own a daemon is only not seen."""
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind("\0" + self._name[1:])
            self._socket.listen()
        except OSError as error:
            logger.warning("other daemons of this host cannot see this one: %s", error)
            return
        threading.Thread(target=self._answer, name="announcement", daemon=True).start()

    def close(self) -> None:
        """End the announcement."""
        if self._socket is not None:
            # Ends the accept of the other thread.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def billed_elsewhere(self, devices: Sequence[str]) -> dict[str, Daemon]:
        """Announce devices, and return those of them that a daemon which comes first has, by UUID.

        Args:
            devices: UUIDs of all devices that were found.
        """
        self._devices = devices
        first = first_of(self._own, self._others(), self._service_uids)
        return {
            uuid: daemon for daemon in reversed(first) for uuid in devices if uuid in daemon.devices
        }

    def _answer(self) -> None:
        listening = self._socket
        while listening is not None:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            own = self._own
            document = {"started_ns": own.started_ns, "store": own.store, "devices": self._devices}
            with connection, suppress(OSError):
                connection.settimeout(TIMEOUT_S)
                connection.sendall(json.dumps(document).encode())

    def _others(self) -> list[Daemon]:
        """Read the announcements that may come before this daemon's."""
        found: list[Daemon | None] = []
        of_users = READ_MAX if self._own.uid in self._service_uids else 0
        for name in islice(self._names(), NAMES_MAX):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, suppress(OSError):
                # A connection is never waited for.
                peer.setblocking(False)
                peer.connect("\0" + name[1:])
                size = _CREDENTIALS.size
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
                pid, uid, _ = _CREDENTIALS.unpack(credentials)
                of_users += uid not in self._service_uids
                if uid in self._service_uids or of_users <= READ_MAX:
                    found.append(_read(peer, pid, uid))
        return [daemon for daemon in found if daemon is not None]

    def _names(self) -> Iterator[str]:
        try:
            text = Path("/proc/net/unix").read_text(errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            _, at, name = line.partition(self._prefix)
            if at and at + name != self._name:
                yield at + name


def _read(peer: socket.socket, pid: int, uid: int) -> Daemon | None:
    """Read the announcement of a process; None if it is none."""
    peer.settimeout(TIMEOUT_S)
    data, ends_s = b"", time.monotonic() + TIMEOUT_S
    with suppress(OSError):
        while (
            len(data) < ANSWER_BYTES
            and time.monotonic() < ends_s
            and (part := peer.recv(ANSWER_BYTES))
        ):
            data += part
    try:
        document: Mapping[str, Any] = bounded_object(data, ANSWER_BYTES)
        devices = frozenset(map(str, document["devices"]))
        store = one_line(str(document["store"]))[:STORE_CHARS]
        return Daemon(pid, uid, int(document["started_ns"]), store, devices)
    except SHAPE_ERRORS:
        return None
