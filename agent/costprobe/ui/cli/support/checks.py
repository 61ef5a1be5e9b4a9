"""The prerequisites of costprobe on a host, each checked once."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from costprobe.adapters.notifiers.registry import check_notifier
from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.sensors.settings import TelemetryConfig
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.sinks.sink_check import check_sink
from costprobe.adapters.system.child_environment import child_environment
from costprobe.app.measuring.targets import AnyProbe
from costprobe.core.bounded import bounded_object
from costprobe.core.clock import SystemClock
from costprobe.core.records import Device
from costprobe.core.units import counted
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.ui.cli.support.discovery import short_lived_sensor

TORCH_TIMEOUT_S = 120.0
MAX_FACTS_CHARS = 1 << 16
MIN_FREE_BYTES = 1 << 30
_TIME_ERROR = 5
_TIMEX_BYTES = 512
# -c puts the working folder in front of the path; it may belong to another user.
_TORCH_PROGRAM = """
import sys
if sys.path[0] == "": del sys.path[0]
import json, torch
found = {"torch": torch.__version__, "built_for": torch.version.cuda, "cuda": False, "names": []}
found["cuda"] = torch.cuda.is_available()
if found["cuda"]:
    found["names"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps(found))
"""


class Check(NamedTuple):
    """One prerequisite: good, bad, or a note."""

    name: str
    state: Literal["good", "note", "bad"]
    detail: str
    fix: str


def sensor_checks(
    telemetry: TelemetryConfig, services: Sequence[ServiceConfig] = ()
) -> Iterator[Check]:
    """Check NVIDIA's driver and its permissions, the devices, and the energy source."""
    has_driver = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()
    with short_lived_sensor(telemetry) as sensor:
        devices, status = sensor.devices(), sensor.status()
    gpus = [device for device in devices if not device.is_host]
    driver = status.get("driver_version")
    if gpus:
        yield Check("NVIDIA driver", "good", f"{driver}, {counted(len(gpus), 'device')}", "")
    elif has_driver:
        fix = "run nvidia-smi; if permission is denied, add this user to the group that owns /dev/nvidia*"
        yield Check("NVIDIA driver", "bad", "loaded, but NVML found no GPU", fix)
    else:
        yield Check("NVIDIA driver", "note", "not found: the CPU is measured instead", "")
    for device in devices:
        yield Check(f"device {device.name}", "good", device.model, "")
    if not devices:
        fix = "set telemetry.cpu = true to measure the CPU"
        yield Check("devices", "bad", "none found", fix)
    yield from _held_checks(services, devices)
    if status["last_fault"]:
        yield Check("sensor", "bad", status["last_fault"], "see the log of costprobe run")
    if any(device.is_host for device in devices):
        yield _rapl_check(Path("/sys/class/powercap"))


def _held_checks(services: Sequence[ServiceConfig], devices: Sequence[Device]) -> Iterator[Check]:
    """Check the device names of services: with a wrong name a service has no cost."""
    names = [device.name for device in devices]
    divided = {device.parent for device in devices}
    for service in services:
        for name in service.devices:
            if name not in names:
                fix = f"use one of: {', '.join(names) or 'no device was found'}"
                yield Check(
                    f"service {service.name}", "bad", f"{name} is not a device of this host", fix
                )
            elif name in divided:
                detail = f"{name} is partitioned into MIG devices"
                fix = "name its MIG devices: " + ", ".join(
                    device.name for device in devices if device.parent == name
                )
                yield Check(f"service {service.name}", "bad", detail, fix)


def _rapl_check(powercap: Path) -> Check:
    counters = sorted(powercap.glob("intel-rapl:*/energy_uj"))
    if not counters:
        detail = "no RAPL counters (usual in a virtual machine): CPU energy is modelled, ±50 %"
        return Check("RAPL", "note", detail, "")
    if not os.access(counters[0], os.R_OK):
        fix = (
            "let the service's group read it: chgrp costprobe /sys/class/powercap/*/energy_uj"
            " and chmod g+r, at each boot (a udev rule or tmpfiles.d does it)"
        )
        return Check("RAPL", "bad", f"{counters[0]} is not readable: energy is modelled", fix)
    return Check("RAPL", "good", counted(len(counters), "counter"), "")


def torch_checks(probes: Sequence[AnyProbe]) -> Iterator[Check]:
    """Check torch in every interpreter of a probe that runs a model."""
    models = [probe for probe in probes if isinstance(probe, ProbeConfig)]
    for python in sorted({str(probe.python or sys.executable) for probe in models}):
        yield _torch_check(python)


def _torch_check(python: str) -> Check:
    name = f"torch under {python}"
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own interpreter, no shell
            [python, "-c", _TORCH_PROGRAM],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            env=child_environment(os.environ),
            check=False,
        )
    except OSError as error:
        return Check(name, "bad", str(error.strerror), "set python in [[probe]] to one with torch")
    except subprocess.TimeoutExpired:
        return Check(
            name,
            "bad",
            f"no answer in {TORCH_TIMEOUT_S:.0f} s",
            "check whether the driver hangs: dmesg",
        )
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Check(name, "bad", words, f"{python} -m pip install torch")
    return _found_torch(name, (done.stdout.strip().splitlines() or [""])[-1])


def _found_torch(name: str, line: str) -> Check:
    """Return the check by the last line of _TORCH_PROGRAM's output."""
    try:
        facts = bounded_object(line, MAX_FACTS_CHARS)
        cuda, names, torch = facts["cuda"], ", ".join(facts["names"]), str(facts["torch"])
    except (ValueError, KeyError, TypeError):
        fix = "set python in [[probe]] to an interpreter, which prints nothing else"
        return Check(name, "bad", "its output is not that of our program", fix)
    if cuda:
        return Check(name, "good", f"{torch}, CUDA on {names}", "")
    if Path("/dev/nvidiactl").exists():
        fix = "install a CUDA build of torch that the driver supports"
        return Check(name, "bad", f"{torch} finds no CUDA device", fix)
    return Check(name, "good", f"{torch}, CPU only", "")


def store_checks(store: Path) -> Iterator[Check]:
    """Check free space and write permission of the store."""
    folder = next(parent for parent in [store.parent, *store.parents] if parent.exists())
    if not os.access(folder, os.W_OK):
        fix = "run as the service's user, or set store.path"
        yield Check("store", "bad", f"{folder} is not writable by this user", fix)
        return
    free_bytes = shutil.disk_usage(folder).free
    detail = f"{store}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < MIN_FREE_BYTES:
        yield Check("store", "bad", detail, "free some space, or set store.path to another disk")
    else:
        yield Check("store", "good", detail, "")


def sink_checks(sinks: Sequence[SinkConfig]) -> Iterator[Check]:
    """Check that each database is reachable and accepts the credentials."""
    for sink in sinks:
        result = check_sink(sink, SystemClock())
        yield Check(f"sink {sink.name}", "good" if result.ok else "bad", result.detail, result.fix)
    if not sinks:
        yield Check("sinks", "note", "none: the series stay in the local store", "")


def host_checks() -> Iterator[Check]:
    """Check the clock, which timestamps every row."""
    # adjtimex(2) with modes = 0 only reads; a struct timex fits well into the buffer.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state == _TIME_ERROR:
        fix = "run chrony or systemd-timesyncd, or rows of several hosts do not align"
        yield Check("clock", "note", "not synchronized, according to the kernel", fix)
    else:
        yield Check("clock", "good", "synchronized", "")


def notifier_checks(notifiers: Sequence[NotifierConfig]) -> Iterator[Check]:
    """Check each notifier's secrets, certificates and address, without sending."""
    for notifier in notifiers:
        problems = check_notifier(notifier)
        fix = "then test it: costprobe alerts test" if problems else ""
        detail = "; ".join(problems) or f"{notifier.kind}, secrets and certificates are readable"
        yield Check(f"notifier {notifier.name}", "bad" if problems else "good", detail, fix)
    if not notifiers:
        yield Check("notifiers", "note", "none: alerts appear in costprobe alerts only", "")
