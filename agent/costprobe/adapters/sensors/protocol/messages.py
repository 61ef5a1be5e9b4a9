"""The protocol between the daemon and the sensor child: one JSON object per line.

All times are CLOCK_MONOTONIC ns. The daemon's first line is the settings; then come commands
(`watch`, `mark`, `energy`, `activity`, `stop`). The child's first line is the `handshake`; then come
`heartbeat`, `reading`, `energy`, `activity`, `selftest`, `fault`, `drivers`, `device`, `slices` and
`exit` lines. A closed pipe means stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

from costprobe.adapters.sensors.protocol.activity import Activity
from costprobe.adapters.sensors.protocol.faults import SensorFault
from costprobe.adapters.sensors.protocol.sample import Absent
from costprobe.core.bounded import bounded_object
from costprobe.core.records import Device, Energy, EnergyScope, Reading

# The longest line: a handshake with 16 devices takes 4 kB, a reading 1 kB.
LINE_BYTES_MAX: Final = 65536
# Writes of up to this many bytes (PIPE_BUF) to a pipe are atomic.
COMMAND_BYTES_MAX: Final = 4096

Message = Mapping[str, Any]

# `json.dumps` constructs an encoder for each message.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

# The keys of each command: integers, except the device's name and the list of processes.
_TIMES: Final = ("start_ns", "end_ns")
COMMAND_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "stop": (),
    "watch": ("device", "until_ns"),
    "mark": ("device",),
    "energy": ("device", "id", *_TIMES, "steady_start_ns", "steady_end_ns"),
    "activity": ("device", "id", *_TIMES, "own_pids"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSettings:
    """How the sensor child reads this host's devices: the section [telemetry], and what is fixed.

    Attributes:
        every_s: Time between the samples of a device in s.
        aggregate_s: Length of an aggregate in s.
        deadline_s: A driver call that takes longer, in s, counts as hung.
        gpus: Whether to read GPUs.
        cpu: Whether to read the processors; "auto": if no GPU is found.
        cpu_idle_w: Modelled power of all idle processors in W; None for an average processor.
        cpu_max_w: Modelled power of all busy processors in W; None likewise.
        processes: Whether to read how busy each process keeps a device.
        startup_s: Longest discovery of a device in s: without the driver's persistence mode each
            GPU is initialized first.
        report_s: A driver or a device whose discovery takes longer, in s, is reported, and the
            others are read meanwhile.
        sysfs_root: Root of the file system that holds /proc and /sys.
        quarantine_first_s: How long a device that failed is not accessed at first, in s.
        quarantine_max_s: How long at most, after doubling each time, in s.
        selftest_s: Time in s for which a GPU's energy counter is compared with its power; 0: never.
    """

    every_s: float
    aggregate_s: float
    deadline_s: float
    gpus: bool
    cpu: bool | Literal["auto"]
    cpu_idle_w: float | None
    cpu_max_w: float | None
    processes: bool
    startup_s: float = 60.0
    report_s: float = 5.0
    sysfs_root: str = "/"
    quarantine_first_s: float = 60.0
    quarantine_max_s: float = 3600.0
    selftest_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A device that a new child must not access for a while.

    Attributes:
        device: Name of the device.
        retry_after_s: How long, in s.
    """

    device: str
    retry_after_s: float


def encode(message: Message) -> bytes:
    """Encode one line."""
    return _ENCODER.encode(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Decode the object of a line.

    Raises:
        ValueError: It is not a JSON object.
    """
    return bounded_object(line)


def parse_command(line: bytes) -> Message:
    """Parse a command of the daemon.

    Raises:
        ValueError: The line is not a command.
    """
    command = decode(line)
    keys = COMMAND_KEYS.get(str(command.get("cmd")))
    if keys is None or not command.keys() >= set(keys):
        raise ValueError("a command is one of " + ", ".join(COMMAND_KEYS) + ", with its keys")
    return command


def settings_message(settings: SensorSettings, quarantined: Iterable[Quarantined]) -> Message:
    """The daemon's first line."""
    return {**asdict(settings), "quarantined": [asdict(entry) for entry in quarantined]}


def parse_settings(message: Message) -> tuple[SensorSettings, tuple[Quarantined, ...]]:
    """Parse the first line; unknown keys are ignored."""
    names = {field.name for field in fields(SensorSettings)}
    settings = SensorSettings(**{key: message[key] for key in message.keys() & names})
    quarantined = tuple(
        Quarantined(str(entry["device"]), float(entry["retry_after_s"]))
        for entry in message.get("quarantined", ())
    )
    return settings, quarantined


def device_message(device: Device) -> Message:
    """The message of a device."""
    return asdict(device)


def parse_device(message: Message) -> Device:
    """Parse a device.

    Raises:
        TypeError: A key is missing or unknown.
    """
    return Device(**message)


def fault_message(device: str | None, fault: SensorFault, **more: float) -> Message:
    """The message of a fault."""
    message: dict[str, Any] = {
        "type": "fault",
        "device": device,
        "call": fault.call,
        "code": fault.code,
        "reaction": fault.reaction.value,
        "detail": fault.detail,
    }
    return {**message, **more}


def selftest_message(device: str, ratio: float, *, suspect: bool) -> Message:
    """The message of a self-test's result."""
    return {"type": "selftest", "device": device, "ratio": ratio, "suspect": suspect}


def energy_message(
    identity: int, result: Energy | Absent, scope: EnergyScope = "device"
) -> Message:
    """The answer to an `energy` command."""
    if isinstance(result, Absent):
        return {"type": "energy", "id": identity, "absent": result.reason}
    return {
        "type": "energy",
        "id": identity,
        "energy_j": result.energy_j,
        "method": result.method,
        "rel_err": result.rel_err,
        "idle_power_w": result.idle_power_w,
        "scope": scope,
        "suspect": result.suspect,
    }


def activity_message(identity: int, activity: Activity) -> Message:
    """The answer to an `activity` command."""
    return {"type": "activity", "id": identity, **asdict(activity)}


def reading_message(reading: Reading) -> Message:
    """The message of a reading."""
    message: dict[str, Any] = {
        "type": "reading",
        "device": reading.device,
        "start_ns": reading.start_ns,
        "end_ns": reading.end_ns,
        "fields": dict(reading.fields),
    }
    if reading.busy_by_pid_s is not None:
        # As pairs, because the keys of a JSON object are text.
        message["busy_by_pid_s"] = list(reading.busy_by_pid_s.items())
    return message


def parse_reading(message: Message) -> Reading:
    """Parse a reading.

    Raises:
        KeyError, TypeError, ValueError: The message is not a reading.
    """
    start_ns, end_ns = int(message["start_ns"]), int(message["end_ns"])
    pairs = message.get("busy_by_pid_s")
    busy = None if pairs is None else {int(pid): float(busy_s) for pid, busy_s in pairs}
    return Reading(str(message["device"]), start_ns, end_ns, dict(message["fields"]), busy)


def parse_energy(message: Message) -> Energy | Absent:
    """Parse the answer to an `energy` command."""
    if "absent" in message:
        return Absent(str(message["absent"]))
    keys = ("energy_j", "method", "rel_err", "idle_power_w")
    scope, suspect = message.get("scope", "device"), message.get("suspect")
    energy_j, method, rel_err, idle_power_w = (message[key] for key in keys)
    return Energy(energy_j, method, rel_err, idle_power_w, scope, suspect)


def parse_activity(message: Message) -> Activity:
    """Parse the answer to an `activity` command; missing keys are unknown."""
    names = {field.name for field in fields(Activity)}
    return Activity(**{key: message[key] for key in message.keys() & names})


class LineSplitter:
    """Splits a stream of bytes into lines of bounded length, and counts longer ones.

    Args:
        max_bytes: Longest line in bytes; longer ones are discarded.
    """

    def __init__(self, max_bytes: int = LINE_BYTES_MAX) -> None:
        self._max_bytes = max_bytes
        self._buffer = b""
        self._skipping = False
        self.overlong_lines = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the lines that they complete, without line ends."""
        *lines, incomplete = (self._buffer + data).split(b"\n")
        if lines and self._skipping:
            lines.pop(0)
            self._skipping = False
        complete = [line for line in lines if len(line) <= self._max_bytes]
        self.overlong_lines += len(lines) - len(complete)
        if self._skipping:
            incomplete = b""
        elif len(incomplete) > self._max_bytes:
            self.overlong_lines += 1
            self._skipping = True
            incomplete = b""
        self._buffer = incomplete
        return complete
