"""The current faults, derived from the status document."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
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


def disk_of(path: Path) -> Disk | None:
    """Return size and free bytes of a file's disk; None if it cannot be read."""
    try:
        usage = shutil.disk_usage(path.parent)
    except OSError:
        return None
    return Disk(usage.free, usage.total)


_DOCTOR = "run `costprobe doctor`"


def present_faults(status: Status, disk: Disk | None) -> list[Fault]:
    """Return the faults that a status document shows.

    Args:
        status: The status document.
        disk: The store's disk; None if unknown.
    """
    # A part without a state may be None in a document of another version.
    status = {name: part for name, part in status.items() if part is not None}
    sources = (_of_sensors, _of_measurements, _of_sources, _of_deliveries, _of_process)
    faults = [fault for source in sources for fault in source(status)]
    share = disk.free_bytes / disk.total_bytes if disk and disk.total_bytes else 1.0
    if disk and share < DISK_FREE_SHARE and disk.free_bytes < DISK_FREE_BYTES:
        text = (
            f"{disk.free_bytes / GIB:.1f} GiB ({share * 100:.0f} %) are free on the disk of"
            f" {status['store']['path']}"
        )
        fix = "free some space, or, if a sink is behind, reduce store.outbox_retention"
        faults.append(Fault("disk_low", "", text, "critical", fix=fix))
    return faults


def _of_sensors(status: Status) -> Iterator[Fault]:
    sensor = status["sensor"]
    devices = sensor.get("devices", {})
    for name, device in devices.items():
        if device["state"] != "good":
            text = f"{name} does not respond and is quarantined"
            yield Fault("device_lost", name, text, "critical", {"device": name}, fix=_DOCTOR)
        if device.get("suspect"):
            text = (
                f"{name}: the energy counter and the power disagree (counter / power"
                f" {device['counter_to_power_ratio']:.2f}); its energy is suspect"
            )
            yield Fault("energy_suspect", name, text, "warning", {"device": name})
    for uuid, board in status.get("absent_boards", {}).items():
        # A quarantined board is lost, and cannot report its UUID.
        if devices.get(board["device"], {"state": "good"})["state"] == "good":
            fix = (
                "check `dmesg` and the slot; if it was removed for good, run"
                f" `costprobe annotate --device {uuid} --left`"
            )
            labels = {"device": board["device"]}
            yield Fault("device_absent", uuid, board["text"], "critical", labels, fix=fix)
    for name, text in status.get("billed_elsewhere", {}).items():
        yield Fault("billed_elsewhere", name, text, "warning", {"device": name})
    for vendor, reason in sensor.get("driver_faults", {}).items():
        text = f"the {vendor} driver cannot be used, its devices are not measured ({reason})"
        yield Fault("driver_failing", vendor, text, "critical", fix=_DOCTOR)
    if sensor["state"] not in {"running", "stopped"}:
        last = f" ({sensor['last_fault']})" if sensor.get("last_fault") else ""
        text = f"the sensor process is {sensor['state']}{last}"
        yield Fault("sensor_restarting", "", text, fix=_DOCTOR)


def _of_measurements(status: Status) -> Iterator[Fault]:
    for probe in status["probes"]:
        if probe["fault"] is not None:
            subject = f"{probe['probe']} on {probe['device']}"
            text = f"probe {subject} fails: {probe['fault']['title']}"
            labels = {"device": probe["device"], "probe": probe["probe"]}
            yield Fault("probe_failing", subject, text, "warning", labels)
    for service in status.get("services", ()):
        name = service["service"]
        if service["fault"]:
            text = f"service {name} cannot be read ({service['fault']}); its windows have no cost"
            yield Fault("service_unread", name, text, "warning", {"service": name})
        if problems := (service["last"] or {}).get("cost_problems"):
            text = f"service {name} has no cost: {'; '.join(problems)}"
            yield Fault("service_uncosted", name, text, "warning", {"service": name})
    if reason := status.get("kubernetes", {}).get("fault"):
        text = (
            f"the pods of this node cannot be read completely ({reason}); their devices' cost may"
            " be unallocated"
        )
        yield Fault("pods_unread", "", text, "warning")


def _of_sources(status: Status) -> Iterator[Fault]:
    for name, spot in status.get("spot_prices", {}).items():
        if spot["stale"]:
            text = f"spot price {name} is stale{_reason(spot)}; costs use the last known price"
            yield Fault("price_stale", name, text, "warning")
    if reason := status.get("server_power", {}).get("fault"):
        text = f"the server's power cannot be used ({reason}); the energy besides its devices is unknown"
        yield Fault("server_power_unusable", "", text, "warning")
    carbon = status.get("carbon")
    if carbon and carbon["stale"]:
        text = f"the carbon intensity is stale{_reason(carbon)}; emissions use the last known one"
        yield Fault("carbon_stale", "", text)


def _reason(feed: Mapping[str, Any]) -> str:
    return f" ({feed['last_error']})" if feed["last_error"] else ""


def _of_deliveries(status: Status) -> Iterator[Fault]:
    for name, sink in status["sinks"].items():
        if sink["retry_in_s"] is not None:
            text = f"sink {name} accepts no points ({sink['last_error']}); they are queued in the store"
            yield Fault("sink_behind", name, text, "warning", {"sink": name})
        if rejections := sink.get("rejections"):
            text = (
                f"sink {name}: the database permanently rejected"
                f" {counted(rejections['points'], 'point')} ({rejections['reason']})"
            )
            fix = f"see `costprobe sink rejected {name}`"
            yield Fault("rows_rejected", name, text, "warning", {"sink": name}, fix=fix)
    for name, notifier in status["notifiers"].items():
        if notifier["failing"]:
            text = (
                f"notifier {name} does not deliver ({notifier['failing']}); its messages are queued"
            )
            yield Fault("notifier_failing", name, text, "warning", {"notifier": name})


def _of_process(status: Status) -> Iterator[Fault]:
    if fault := status.get("http", {}).get("fault"):
        yield Fault("http_failing", "", f"HTTP is not served: {fault}")
    store = status["store"]
    if store["fault"]:
        text = f"{store['fault']}; points are queued in memory"
        yield Fault("store_failing", "", text, "critical")
    for path in store.get("replaced", ()):
        text = f"the store was damaged and replaced by a new one; {path} has the old rows"
        fix = "save what it has (`sqlite3 FILE .recover`), then move or delete it"
        yield Fault("store_replaced", path, text, "critical", fix=fix)
    if reason := status.get("config_fault"):
        first, *others = str(reason).splitlines()
        remainder = f" (and {len(others)} more)" if others else ""
        text = f"the new configuration was rejected, the old one stays in force: {first}{remainder}"
        yield Fault("config_refused", "", text)
