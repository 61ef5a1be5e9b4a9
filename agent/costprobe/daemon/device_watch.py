"""The devices of the host as the daemon knows them: found, renumbered, absent, billed by another daemon."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from costprobe.adapters.host.announced import Announcement
from costprobe.adapters.host.announced import Daemon as OtherDaemon
from costprobe.adapters.host.processes import SignalFlag
from costprobe.adapters.sensors.messages import Backoff, SensorSettings
from costprobe.adapters.sensors.supervisor import CHILD_COMMAND, SensorSupervisor
from costprobe.adapters.store.ledger import Ledger, StoreLedger, restored
from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.watching import ENGINE_STATE
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Device, Event
from costprobe.devices.boards import (
    BOARDS_STATE,
    Board,
    board_events,
    boards_document,
    boards_of,
    found_boards,
    moved_states,
    moves,
    renaming,
)
from costprobe.drift.findings import STATE_PREFIX

logger = logging.getLogger(__name__)

DEVICES_TIMEOUT_S = 8.0
DEVICES_POLL_S = 0.2
# Shortest time between two rebuilds for changed devices; it doubles while they keep changing.
REBUILD_FIRST_S = 5.0
REBUILD_MAX_S = 300.0
SENSOR_STOP_S = 1.0


class DeviceWatch:
    """Starts the sensor child, and follows the devices that it finds.

    Args:
        settings: The settings of the sensor child.
        on_event: Receives its faults and recoveries.
        clock: The host's clocks.
        stop: Set when the daemon stops.
        announcement: Tells other daemons of the host the devices.

    Attributes:
        sensor: The sensor child's supervisor.
        found: The devices of the host; empty before `start`.
        devices: Those that are measured.
        elsewhere: The daemons that bill the others, by the device's name.
    """

    def __init__(
        self,
        settings: SensorSettings,
        on_event: Callable[[Event], None],
        clock: Clock,
        stop: SignalFlag,
        announcement: Announcement,
    ) -> None:
        self._announcement = announcement
        self._on_event = on_event
        self._clock = clock
        self._stop = stop
        self.sensor = self._new_sensor(settings)
        self.found: tuple[Device, ...] = ()
        self.devices: tuple[Device, ...] = ()
        self.elsewhere: Mapping[str, OtherDaemon] = {}
        self._rebuilds = Backoff(REBUILD_FIRST_S, REBUILD_MAX_S, reset_after_s=REBUILD_MAX_S)
        self._rebuild_ns = 0

    def start(self) -> None:
        """Start the sensor child, and wait for its devices."""
        self.sensor.start()
        self._take(self._found())

    def replace(self, settings: SensorSettings) -> None:
        """Replace the sensor child by one with other settings."""
        self.stop()
        self.sensor = self._new_sensor(settings)
        self.start()

    def stop(self) -> None:
        """Stop the sensor child."""
        self.sensor.stop(SENSOR_STOP_S)

    def changed(self) -> bool:
        """Return whether other devices are measured from now on; less often while they keep changing.

        A change ends running probes, and MIG devices may be created and destroyed every second.
        """
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._rebuild_ns:
            return False
        before = self.devices
        self._take(self.sensor.devices())
        if self.devices == before:
            return False
        logger.info("the devices changed: %s", ", ".join(device.name for device in self.devices))
        self._rebuild_ns = now_ns + int(self._rebuilds.next_s(now_ns) * NS_PER_S)
        return True

    def _take(self, found: tuple[Device, ...]) -> None:
        """Announce the devices of the host, and measure those that no other daemon bills."""
        others = self._announcement.billed_elsewhere([device.uuid for device in found])
        self.found = found
        self.elsewhere = {
            device.name: others[device.uuid] for device in found if device.uuid in others
        }
        self.devices = tuple(device for device in found if device.name not in self.elsewhere)

    def _found(self) -> tuple[Device, ...]:
        """Wait for the sensor child's discovery, and return the devices known by then."""
        ends_ns = self._clock.monotonic_ns() + int(DEVICES_TIMEOUT_S * NS_PER_S)
        while self._clock.monotonic_ns() < ends_ns and not self._stop.is_set():
            devices = self.sensor.wait_for_devices(DEVICES_POLL_S)
            if self.sensor.has_looked():
                return devices
        return self.sensor.devices()

    def _new_sensor(self, settings: SensorSettings) -> SensorSupervisor:
        return SensorSupervisor(CHILD_COMMAND, settings, self._on_event, self._clock)


# Documents whose second word is a device, and those that mention devices.
BY_DEVICE = ("terms", "probe", "duty", "job", STATE_PREFIX.strip())
OF_HOST = (ENGINE_STATE,)


def kept_boards(ledger: Ledger) -> dict[str, Board]:
    """Return the boards that the store knows, by UUID."""
    return restored(ledger, BOARDS_STATE, boards_of) or {}


class HostBoards:
    """The boards of this host: what the store keeps follows a board to its new name.

    Args:
        ledger: Keeps the boards.
        store_path: The store, whose rows and documents move with the boards.
        clock: UTC.
    """

    def __init__(self, ledger: StoreLedger, store_path: Path, clock: Clock) -> None:
        self._ledger = ledger
        self._store_path = store_path
        self._clock = clock
        self._boards = kept_boards(ledger)

    def would_move(self, devices: Sequence[Device]) -> bool:
        """Return whether boards have other names among the devices that were found."""
        return bool(moves(self._boards, found_boards(self._boards, devices, 0)))

    def take(self, devices: Sequence[Device]) -> list[Event]:
        """Take the devices that were found; return an event for each name of another board.

        No part that reads or writes the rows or documents of devices may run.

        Raises:
            StoreError: The store cannot be read, or written while boards have other names.
        """
        before, time_ns = self._boards, self._clock.time_ns()
        after = found_boards(before, devices, time_ns)
        if after == before:
            return []
        states: dict[str, Any] = {BOARDS_STATE: boards_document(after)}
        if moved := moves(before, after):
            rename = renaming(moved)
            with closing(StoreReader.open(self._store_path)) as reader:
                stored = {name: document for name, (document, _) in reader.states().items()}
            states |= moved_states(stored, rename, BY_DEVICE, OF_HOST)
            self._ledger.rename_devices(rename, states)
        else:
            self._ledger.append((), states)
        self._boards = after
        return board_events(before, after, time_ns)

    def absent(self) -> list[Board]:
        """Return the boards that are absent, the longest absent first."""
        return [
            board
            for board in self._boards.values()
            if board.absent_ns is not None and not board.left
        ]

    def leave(self, uuid: str) -> Board:
        """Report no more that a board is absent, which was removed for good.

        Raises:
            ValueError: No such board is absent.
        """
        absent = {board.uuid: board for board in self.absent()}
        if uuid not in absent:
            there_are = ", ".join(absent) or "none"
            raise ValueError(f"device: no board {uuid!r} is absent; absent are: {there_are}")
        self._boards = {**self._boards, uuid: replace(absent[uuid], left=True)}
        self._ledger.put_state(BOARDS_STATE, boards_document(self._boards))
        return absent[uuid]
