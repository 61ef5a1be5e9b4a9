"""The current faults, derived from the status document."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costprobe.core.incident import Fault
from costprobe.core.units import counted

Status = Mapping[str, Any]

# The disk is low below both limits: a share alone would alert on a large disk.
DISK_FREE_SHARE = 0.05
DISK_FREE_BYTES = 2 << 30
GIB = 1 << 30


class Disk(NamedTuple):
    """The file system of the store.

    Attributes:
        free_bytes: Free bytes for this user.
        total_bytes: Its size.
    """

    free_bytes: int
    total_bytes: int


def disk_of(path: Path) -> Disk:
    """Return size and free bytes of a file's disk.

    Raises:
        OSError: It cannot be read.
    """
    usage = os.statvfs(path.parent)
    return Disk(usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize)


def present_faults(status: Status, disk: Disk | None) -> list[Fault]:
    """Return the faults that a status document shows.

    Args:
        status: The status document.
        disk: The store's disk; None if unknown.
    """
    faults = [fault for rule in RULES for fault in rule(status)]
    if disk is not None:
        faults += _disk_low(disk, str(status["store"]["path"]))
    return faults


def _device_lost(status: Status) -> Iterator[Fault]:
    for name, device in status["sensor"].get("devices", {}).items():
        if device["state"] != "good":
            yield Fault(
                "device_lost",
                name,
                f"{name} does not respond and is quarantined; `costprobe doctor` reports why",
                "critical",
                {"device": name},
            )


def _device_absent(status: Status) -> Iterator[Fault]:
    devices = status["sensor"].get("devices", {})
    for uuid, board in status.get("absent_boards", {}).items():
        # A quarantined board is lost, and cannot report its UUID.
        if devices.get(board["device"], {"state": "good"})["state"] == "good":
            yield Fault(
                "device_absent",
                uuid,
                f"{board['text']}: check `dmesg` and the slot; if it was removed for good, run"
                f" `costprobe annotate --device {uuid} --left`",
                "critical",
                {"device": board["device"]},
            )


def _billed_elsewhere(status: Status) -> Iterator[Fault]:
    for name, text in status.get("billed_elsewhere", {}).items():
        yield Fault("billed_elsewhere", name, text, "warning", {"device": name})


def _driver_failing(status: Status) -> Iterator[Fault]:
    for vendor, reason in status["sensor"].get("driver_faults", {}).items():
        yield Fault(
            "driver_failing",
            vendor,
            f"the {vendor} driver cannot be used, its devices are not measured ({reason});"
            " run `costprobe doctor`",
            "critical",
        )


def _energy_suspect(status: Status) -> Iterator[Fault]:
    for name, device in status["sensor"].get("devices", {}).items():
        if device.get("suspect"):
            yield Fault(
                "energy_suspect",
                name,
                f"{name}: the energy counter and the power disagree (counter / power"
                f" {device['counter_to_power_ratio']:.2f}); its energy is suspect",
                "warning",
                {"device": name},
            )


def _sensor_restarting(status: Status) -> Iterator[Fault]:
    sensor = status["sensor"]
    if sensor["state"] not in {"running", "stopped"}:
        last = f" ({sensor['last_fault']})" if sensor.get("last_fault") else ""
        yield Fault(
            "sensor_restarting",
            "",
            f"the sensor process is {sensor['state']}{last}; run `costprobe doctor`",
        )


def _probe_failing(status: Status) -> Iterator[Fault]:
    for probe in status["probes"]:
        fault = probe["fault"]
        if fault is not None:
            yield Fault(
                "probe_failing",
                f"{probe['probe']} on {probe['device']}",
                f"probe {probe['probe']} on {probe['device']} fails: {fault['title']}",
                "warning",
                {"device": probe["device"], "probe": probe["probe"]},
            )


def _service_unread(status: Status) -> Iterator[Fault]:
    for service in status.get("services", ()):
        if service["fault"]:
            name = service["service"]
            yield Fault(
                "service_unread",
                name,
                f"service {name} cannot be read ({service['fault']}); its windows have no cost",
                "warning",
                {"service": name},
            )


def _pods_unread(status: Status) -> Iterator[Fault]:
    pods = status.get("kubernetes")
    if pods and pods["fault"]:
        yield Fault(
            "pods_unread",
            "",
            f"the pods of this node cannot be read completely ({pods['fault']}); their devices'"
            " cost may be unallocated",
            "warning",
        )


def _service_uncosted(status: Status) -> Iterator[Fault]:
    for service in status.get("services", ()):
        unknown = (service["last"] or {}).get("cost_problems")
        if unknown:
            name = service["service"]
            yield Fault(
                "service_uncosted",
                name,
                f"service {name} has no cost: {'; '.join(unknown)}",
                "warning",
                {"service": name},
            )


def _sink_behind(status: Status) -> Iterator[Fault]:
    for name, sink in status["sinks"].items():
        if sink["retry_in_s"] is not None:
            yield Fault(
                "sink_behind",
                name,
                f"sink {name} accepts no points ({sink['last_error']}); they are queued in the store",
                "warning",
                {"sink": name},
            )


def _rows_rejected(status: Status) -> Iterator[Fault]:
    for name, sink in status["sinks"].items():
        rejections = sink.get("rejections")
        if rejections:
            yield Fault(
                "rows_rejected",
                name,
                f"sink {name}: the database permanently rejected {counted(rejections['points'], 'point')}"
                f" ({rejections['reason']}); see `costprobe sink rejected {name}`",
                "warning",
                {"sink": name},
            )


def _notifier_failing(status: Status) -> Iterator[Fault]:
    for name, notifier in status["notifiers"].items():
        if notifier["failing"]:
            yield Fault(
                "notifier_failing",
                name,
                f"notifier {name} does not deliver ({notifier['failing']}); its messages are queued",
                "warning",
                {"notifier": name},
            )


def _http_failing(status: Status) -> Iterator[Fault]:
    fault = status.get("http", {}).get("fault")
    if fault:
        yield Fault("http_failing", "", f"HTTP is not served: {fault}")


def _store_failing(status: Status) -> Iterator[Fault]:
    store = status["store"]
    if store["fault"]:
        yield Fault(
            "store_failing", "", f"{store['fault']}; points are queued in memory", "critical"
        )


def _store_replaced(status: Status) -> Iterator[Fault]:
    for path in status["store"].get("replaced", ()):
        yield Fault(
            "store_replaced",
            path,
            f"the store was damaged and replaced by a new one; save what {path} has"
            " (`sqlite3 FILE .recover`), then move or delete it",
            "critical",
        )


def _price_stale(status: Status) -> Iterator[Fault]:
    for name, spot in status.get("spot_prices", {}).items():
        if spot["stale"]:
            reason = f" ({spot['last_error']})" if spot["last_error"] else ""
            yield Fault(
                "price_stale",
                name,
                f"spot price {name} is stale{reason}; costs use the last known price",
                "warning",
            )


def _carbon_stale(status: Status) -> Iterator[Fault]:
    carbon = status.get("carbon")
    if carbon and carbon["stale"]:
        reason = f" ({carbon['last_error']})" if carbon["last_error"] else ""
        yield Fault(
            "carbon_stale",
            "",
            f"the carbon intensity is stale{reason}; emissions use the last known one",
        )


def _config_refused(status: Status) -> Iterator[Fault]:
    reason = status["config_fault"]
    if reason:
        first, *others = str(reason).splitlines()
        remainder = f" (and {len(others)} more)" if others else ""
        yield Fault(
            "config_refused",
            "",
            f"the new configuration was rejected, the old one stays in force: {first}{remainder}",
        )


RULES: tuple[Callable[[Status], Iterator[Fault]], ...] = (
    _device_lost,
    _device_absent,
    _billed_elsewhere,
    _driver_failing,
    _energy_suspect,
    _sensor_restarting,
    _probe_failing,
    _service_unread,
    _pods_unread,
    _service_uncosted,
    _sink_behind,
    _rows_rejected,
    _notifier_failing,
    _http_failing,
    _store_failing,
    _store_replaced,
    _price_stale,
    _carbon_stale,
    _config_refused,
)


def _disk_low(disk: Disk, path: str) -> list[Fault]:
    share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 1.0
    if share >= DISK_FREE_SHARE or disk.free_bytes >= DISK_FREE_BYTES:
        return []
    return [
        Fault(
            "disk_low",
            "",
            f"{disk.free_bytes / GIB:.1f} GiB ({share * 100:.0f} %) are free on the disk of {path};"
            " free some space, or reduce store.retention",
            "critical",
        )
    ]
