"""What the daemon and the sensor child say to each other: one JSON object a line.

All times on the wire are CLOCK_MONOTONIC ns. The daemon's first line is the settings; then come
commands (`watch`, `mark`, `energy`, `activity`, `stop`). The child answers with `hello`, then `beat`,
`reading`, `energy`, `activity`, `selftest`, `fault`, `device` and `bye` lines. A closed pipe means stop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

from agent.model import Device, Energy, EnergyScope, Reading
from agent.telemetry.activity import Activity
from agent.telemetry.energy import Absent
from agent.telemetry.faults import SensorFault

# The longest line: a hello of 16 devices takes 4 kB, a reading 1 kB.
LINE_BYTES_MAX: Final = 65536
# A pipe takes up to this many bytes (PIPE_BUF) whole or not at all.
COMMAND_BYTES_MAX: Final = 4096

Message = Mapping[str, Any]

# `json.dumps` would make one for each message.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

# What each command must carry: integers, but for the device's name and the list of processes.
_TIMES: Final = ("start_ns", "end_ns")
COMMAND_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "stop": (),
    "watch": ("device", "until_ns"),
    "mark": ("device",),
    "energy": ("device", "id", *_TIMES, "steady_start_ns", "steady_end_ns"),
    "activity": ("device", "id", *_TIMES, "own_pids"),
}


@dataclass(frozen=True, slots=True)
class SensorSettings:
    """How the sensor child reads this host's devices.

    Attributes:
        sample_every_s: Time between the samples of a device in s.
        aggregate_every_s: Length of an aggregate in s.
        deadline_s: A reading that takes longer, in s, counts as hung.
        startup_s: So long may finding the devices take, in s: without the driver's persistence
            mode each GPU is woken first.
        sysfs_root: Root of the file system that holds /proc and /sys.
        gpus: Whether to look for NVIDIA GPUs.
        cpu: Whether to read the processors; "auto": where no GPU is found.
        cpu_idle_w: Modelled power of all idle processors in W; None for an average processor.
        cpu_max_w: Modelled power of all busy processors in W; None likewise.
        quarantine_first_s: How long a device that failed is left alone at first, in s.
        quarantine_max_s: How long at most, after doubling each time, in s.
        selftest_s: For so long, in s, is a GPU's energy counter compared with its power; 0: never.
        processes: Whether to ask the driver how busy each process keeps a device.
    """

    sample_every_s: float = 1.0
    aggregate_every_s: float = 10.0
    deadline_s: float = 5.0
    startup_s: float = 60.0
    sysfs_root: str = "/"
    gpus: bool = True
    cpu: bool | Literal["auto"] = "auto"
    cpu_idle_w: float | None = None
    cpu_max_w: float | None = None
    quarantine_first_s: float = 60.0
    quarantine_max_s: float = 3600.0
    selftest_s: float = 10.0
    processes: bool = False


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A GPU that a new child must leave alone for a while.

    Attributes:
        index: NVML index.
        retry_after_s: How long, in s.
    """

    index: int
    retry_after_s: float


def encode(message: Message) -> bytes:
    """One line of the wire."""
    return _ENCODER.encode(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The object on a line.

    Raises:
        ValueError: It is not a JSON object.
    """
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a line of the wire holds a JSON object")  # noqa: TRY004 - one error for a bad line
    return message


def parse_command(line: bytes) -> Message:
    """Reads a command of the daemon.

    Raises:
        ValueError: It is none.
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
    """Reads the first line; unknown keys are a later daemon's, and are ignored."""
    known = {field.name for field in fields(SensorSettings)}
    settings = SensorSettings(**{key: message[key] for key in message.keys() & known})
    quarantined = tuple(
        Quarantined(int(entry["index"]), float(entry["retry_after_s"]))
        for entry in message.get("quarantined", ())
    )
    return settings, quarantined


def device_message(device: Device) -> Message:
    """A device as it stands on the wire."""
    return asdict(device)


def gpu_index(name: str) -> int | None:
    """The NVML index of the board in a GPU's or a MIG device's name; None for any other device."""
    match = re.fullmatch(r"gpu(\d{1,4})(?:\.mig\d{1,2})?", name)
    return int(match[1]) if match else None


def parse_device(message: Message) -> Device:
    """Reads a device.

    Raises:
        TypeError: A key is missing or unknown.
    """
    return Device(**message)


def fault_message(device: str | None, fault: SensorFault, **more: float) -> Message:
    """A fault as it stands on the wire."""
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
    """The verdict of a device's self-test as it stands on the wire."""
    return {"type": "selftest", "device": device, "ratio": ratio, "suspect": suspect}


def energy_message(
    identity: int, result: Energy | Absent, scope: EnergyScope = "device"
) -> Message:
    """The answer to an `energy` command as it stands on the wire."""
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
    """The answer to an `activity` command as it stands on the wire."""
    return {"type": "activity", "id": identity, **asdict(activity)}


def reading_message(reading: Reading) -> Message:
    """A reading as it stands on the wire."""
    message: dict[str, Any] = {
        "type": "reading",
        "device": reading.device,
        "start_ns": reading.start_ns,
        "end_ns": reading.end_ns,
        "fields": dict(reading.fields),
    }
    if reading.busy_by_pid_s is not None:
        # As pairs: the keys of a JSON object are text.
        message["busy_by_pid_s"] = list(reading.busy_by_pid_s.items())
    return message


def parse_reading(message: Message) -> Reading:
    """Reads a reading.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    start_ns, end_ns = int(message["start_ns"]), int(message["end_ns"])
    pairs = message.get("busy_by_pid_s")
    busy = None if pairs is None else {int(pid): float(busy_s) for pid, busy_s in pairs}
    return Reading(str(message["device"]), start_ns, end_ns, dict(message["fields"]), busy)


def parse_energy(message: Message) -> Energy | Absent:
    """Reads the answer to an `energy` command."""
    if "absent" in message:
        return Absent(str(message["absent"]))
    keys = ("energy_j", "method", "rel_err", "idle_power_w")
    scope, suspect = message.get("scope", "device"), message.get("suspect")
    energy_j, method, rel_err, idle_power_w = (message[key] for key in keys)
    return Energy(energy_j, method, rel_err, idle_power_w, scope, suspect)


def parse_activity(message: Message) -> Activity:
    """Reads the answer to an `activity` command; what it does not say is not known."""
    known = {field.name for field in fields(Activity)}
    return Activity(**{key: message[key] for key in message.keys() & known})


class LineSplitter:
    """Cuts a stream of bytes into lines of bounded length, counting what it throws away.

    Args:
        max_bytes: Longest line in bytes; the rest of a longer one is skipped.
    """

    def __init__(self, max_bytes: int = LINE_BYTES_MAX) -> None:
        self._max_bytes = max_bytes
        self._buffer = b""
        self._skipping = False
        self.overlong_lines = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Takes bytes as they come and gives the lines that they complete, without line ends."""
        *lines, rest = (self._buffer + data).split(b"\n")
        if lines and self._skipping:
            lines.pop(0)
            self._skipping = False
        whole = [line for line in lines if len(line) <= self._max_bytes]
        self.overlong_lines += len(lines) - len(whole)
        if self._skipping:
            rest = b""
        elif len(rest) > self._max_bytes:
            self.overlong_lines += 1
            self._skipping = True
            rest = b""
        self._buffer = rest
        return whole
