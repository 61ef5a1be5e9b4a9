"""The prerequisites of costprobe on a host: devices, store, databases, and code and files of the configuration."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pydantic import BaseModel

from costprobe.adapters.clouds.source import SourceError
from costprobe.adapters.engines.tables import Engine
from costprobe.adapters.host.files import ROOT, other_writer
from costprobe.adapters.host.processes import child_environment
from costprobe.adapters.http.access import Secret, secret_places
from costprobe.adapters.kubernetes.api_server import KubernetesConfig
from costprobe.adapters.probe_child.runner import PROBES_FOLDER
from costprobe.adapters.redfish.power import PowerError, ServerPowerConfig, read_power
from costprobe.adapters.store.database import StoreError, decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.settings import StoreConfig
from costprobe.configuration import Config
from costprobe.core.clock import SystemClock
from costprobe.core.config.fields import SourceConfig
from costprobe.core.config.location import default_store
from costprobe.core.outside import SHAPE_ERRORS, bounded_json, bounded_object
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import Device, Event, natural
from costprobe.core.schema import part_words
from costprobe.core.units import counted
from costprobe.delivery.contract import NotifierConfig, SinkConfig
from costprobe.delivery.kinds import check_notifier, check_sink
from costprobe.devices.boards import BOARDS_STATE, Board, boards_of
from costprobe.devices.use import shared_modules
from costprobe.pricing.electricity import parse_carbon
from costprobe.pricing.plans import FeedPlan, parse_spot
from costprobe.pricing.prices import read_output
from costprobe.probing.run import AnyProbe
from costprobe.probing.settings import ProbeConfig
from costprobe.serving.settings import ServiceConfig, size_of
from costprobe.ui.cli.support.discovery import discovered_devices, short_lived_sensor
from costprobe.ui.cli.support.place import may_write
from costprobe.ui.cli.support.service_venv import torch_arguments

if TYPE_CHECKING:  # its HTTP client is only needed if a service is configured
    from costprobe.adapters.engines.scrape import CounterReading, MetricsFetcher


MIN_FREE_BYTES = 1 << 30
# RAPL is updated about every ms.
RAPL_WAIT_S = 0.1
_TIME_ERROR = 5
_TIMEX_BYTES = 512


class Check(NamedTuple):
    """One prerequisite: good, bad, or a note."""

    name: str
    state: Literal["good", "note", "bad"]
    detail: str
    fix: str


NVIDIA: Final = "NVIDIA driver"


def sensor_checks(config: Config, store: Path) -> Iterator[Check]:
    """Check the drivers and their permissions, the devices, and the energy source."""
    boards = _stored_boards(store) if config.telemetry.gpus else {}
    events: list[Event] = []
    models = sorted({board.model for board in boards.values()})
    with short_lived_sensor(config.telemetry, events, models) as sensor:
        devices, status = sensor.devices(), sensor.status()
    yield from _driver_checks(devices, status)
    for device in devices:
        yield Check(f"device {device.name}", "good", device.model, "")
    yield from _persistence_checks(devices)
    if not devices and not status["driver_faults"]:
        fix = "set telemetry.cpu = true to measure the CPU"
        yield Check("devices", "bad", "none found", fix)
    present = {device.uuid for device in devices}
    for board in boards.values():
        if board.uuid not in present:
            fix = f"if it was removed for good: costprobe annotate --device {board.uuid} --left"
            yield Check(f"device {board.name}", "bad", board.absence, fix)
    yield from _named_checks(config, devices)
    for event in events:
        if event.severity != "info":
            yield Check("sensor", "bad", event.title, event.detail)
    if any(device.is_host for device in devices):
        yield rapl_check(Path("/sys/class/powercap"))


def _driver_checks(devices: Sequence[Device], status: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the drivers can be used, each with its reason if not; NVIDIA's is expected."""
    of_vendor: dict[str, list[Device]] = {NVIDIA: [], "AMD driver": []}
    for device in devices:
        if not device.is_host:
            of_vendor["AMD driver" if device.model.startswith("AMD ") else NVIDIA].append(device)
    versions = {NVIDIA: status.get("driver_version"), **status.get("other_versions", {})}
    for name, gpus in of_vendor.items():
        vendor = name.partition(" ")[0].lower()
        if gpus:
            detail = f"{versions.get(name)}, {counted(len(gpus), 'device')}"
            yield Check(name, "good", detail, "")
        elif (fault := status["driver_faults"].get(vendor)) is not None:
            same = "; nvidia-smi shows the same error" if name == NVIDIA else ""
            yield Check(name, "bad", fault, f"see its reason{same}")
        elif name == NVIDIA and (
            Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()
        ):
            fix = "run nvidia-smi; if permission is denied, add this user to the group that owns /dev/nvidia*"
            yield Check(name, "bad", "loaded, but NVML found no GPU", fix)
        elif name != NVIDIA and Path("/dev/kfd").exists():
            # The driver of a processor's own GPU has it, too.
            detail = "loaded, but AMD SMI (libamd_smi.so) was not found, or has no board"
            yield Check(
                name, "note", detail, "install AMD SMI of ROCm 6.4 or later, or set ROCM_PATH"
            )
        elif name == NVIDIA and not any(of_vendor.values()) and not status["driver_faults"]:
            yield Check(name, "note", "not found: the CPU is measured instead", "")


def _stored_boards(store: Path) -> dict[str, Board]:
    """Return the boards that the store knows; none if it cannot be read, which other checks report."""
    try:
        with closing(StoreReader.open(store)) as reader:
            document, _ = reader.states().get(BOARDS_STATE, ([], 0))
            return boards_of(document)
    except (StoreError, *SHAPE_ERRORS):
        return {}


def _named_checks(config: Config, devices: Sequence[Device]) -> Iterator[Check]:
    """Check device names: with a wrong one a probe does not run, and a service has no cost."""
    config = config.named({device.uuid: device.name for device in devices})
    names = [device.name for device in devices]
    divided = {device.parent for device in devices}
    named = [
        (f"probe {probe.name}", name)
        for probe in config.probe
        for name in (() if probe.devices == "all" else probe.devices)
    ]
    uuids = [device.uuid for device in devices]
    named += [
        (f"price {plan.name}", plan.device)
        for plan in config.price
        if plan.device and plan.device not in uuids
    ]
    held = [
        (f"service {service.name}", name) for service in config.service for name in service.devices
    ]
    unknown: dict[str, list[str]] = {}
    for section, name in [*named, *held]:
        if name not in names:
            unknown.setdefault(section, []).append(name)
    for section, found in unknown.items():
        fix = f"use one of: {', '.join(names) or 'no device was found'}"
        yield Check(section, "bad", f"this host has no device {' or '.join(found)}", fix)
    for section, name in held:
        if name in divided and name in names:
            detail = f"{name} is partitioned"
            fix = "name its partitions: " + ", ".join(
                device.name for device in devices if device.parent == name
            )
            yield Check(section, "bad", detail, fix)


def _persistence_checks(devices: Sequence[Device]) -> Iterator[Check]:
    """Check that the driver keeps GPUs initialized while no process uses them."""
    known = [device for device in devices if device.is_persistent is not None]
    off = [device.name for device in known if not device.is_persistent]
    if off:
        detail = (
            f"off for {', '.join(off)}: after the last process that uses a GPU, the driver resets its"
            " clock and power limits, and the next process waits until it is initialized"
        )
        fix = (
            "systemctl enable --now nvidia-persistenced; without that service"
            " nvidia-smi -pm 1, after each boot"
        )
        yield Check("persistence mode", "note", detail, fix)
    elif known:
        yield Check("persistence mode", "good", f"on for {counted(len(known), 'GPU')}", "")


def rapl_check(powercap: Path) -> Check:
    """Check that the counters of the processor packages exist, can be read, and advance."""
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
    before = counters[0].read_bytes()
    time.sleep(RAPL_WAIT_S)
    if before == counters[0].read_bytes():
        detail = (
            f"{counters[0]} does not advance (a virtual machine): CPU energy is modelled, ±50 %"
        )
        return Check("RAPL", "note", detail, "set cpu_idle_w and cpu_max_w in [telemetry]")
    return Check("RAPL", "good", counted(len(counters), "counter"), "")


def store_checks(store: Path) -> Iterator[Check]:
    """Check free space and write permission of the store."""
    if not may_write(store):
        fix = f'run as the service\'s user, or set store.path = "{default_store(None)}"'
        yield Check("store", "bad", f"this user cannot write {store}", fix)
        return
    folder = next(parent for parent in store.parents if parent.exists())
    free_bytes = shutil.disk_usage(folder).free
    detail = f"{store}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < MIN_FREE_BYTES:
        yield Check("store", "bad", detail, "free some space, or set store.path to another disk")
    else:
        yield Check("store", "good", detail, "")


def module_checks(store: Path) -> Iterator[Check]:
    """Check that no two devices report the energy of one module."""
    if not store.exists():
        return
    now_ns = time.time_ns()
    try:
        with decoding(store), closing(StoreReader.open(store)) as reader:
            rows = reader.points("device", now_ns - HOUR_NS, now_ns, with_hours=False)
            shared = shared_modules(rows)
    except StoreError as error:
        yield Check("store content", "bad", str(error), "costprobe store check names damaged rows")
        return
    for first, other in shared:
        detail = "both report the energy of one module: sums over devices count it twice"
        fix = "use the energy of one of them; see docs/measurement.md"
        yield Check(f"devices {first} and {other}", "note", detail, fix)


def server_power_checks(config: ServerPowerConfig | None) -> Iterator[Check]:
    """Check that the power of the server can be read."""
    if config is None:
        return
    try:
        reading = read_power(config)
    except PowerError as error:
        yield Check("server power", "bad", str(error), "see docs/cost.md, The rest of the server")
        return
    counter = "no energy counter" if reading.energy_kwh is None else f"{reading.energy_kwh:g} kWh"
    yield Check("server power", "good", f"{reading.power_w:,.0f} W, {counter}", "")


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
        fix = "correct that, then test it: costprobe alerts test" if problems else ""
        detail = "; ".join(problems) or f"{notifier.kind}, secrets and certificates are readable"
        yield Check(f"notifier {notifier.name}", "bad" if problems else "good", detail, fix)
    if not notifiers:
        yield Check("notifiers", "note", "none: alerts appear in costprobe alerts only", "")


_TIMER: Final = "; before build 10519 each reading restarts its idle timer (--sleep-idle-seconds)"
_SLEEPING: Final = "docs/serving.md has what to set for servers that sleep"
_ROUNDING: Final = 1e-9
# Several show whether a balancer stands before several servers.
_SCRAPES = 3


def service_checks(services: Sequence[ServiceConfig]) -> Iterator[Check]:
    """Yield a check of each endpoint and its counters."""
    # Imported here, because it is only needed if a service is configured.
    from costprobe.serving.meter import judging_engine, tenants_endpoint, tenants_engine  # noqa: PLC0415

    for service in services:
        if not service.url:
            words = f"no url, as {part_words(service.row_tags)}"
            yield Check(f"service {service.name}", "good", words, "")
        for url in service.url:
            yield _endpoint_check(service, url, judging_engine(service))
        if service.tenants is not None:
            endpoint = tenants_endpoint(service, service.tenants)
            engine = tenants_engine(service.tenants)
            for url in endpoint.url:
                yield _endpoint_check(endpoint, url, engine, service.tenants.label)


def pod_checks(kubernetes: KubernetesConfig | None, host: str) -> Iterator[Check]:
    """Yield a check of the kubelet's API, of the API server's, and of the processes of pods.

    Args:
        kubernetes: The section [kubernetes]; None without it.
        host: Name of the host, which is the node's by default.
    """
    if kubernetes is None:
        return
    # Imported here, because it is only needed on a Kubernetes node.
    from costprobe.adapters.kubernetes.api_server import ApiServer  # noqa: PLC0415
    from costprobe.adapters.kubernetes.pod_resources import KubernetesError, PodResources  # noqa: PLC0415 - as above

    node, pods = kubernetes.node or host, {}
    fix = "docs/howto/kubernetes.md has the volume and the permissions that it needs"
    try:
        containers = len(PodResources(kubernetes.socket).read().containers)
        detail = f"{counted(containers, 'container')} with devices"
        if kubernetes.api_url:
            pods = ApiServer(kubernetes, node).pods()
            detail += f"; {counted(len(pods), 'pod')} on {node}"
    except KubernetesError as error:
        yield Check("kubernetes", "bad", str(error), fix)
    else:
        yield Check("kubernetes", "good", detail, "")
        ids = {each for pod in pods.values() for each in (pod.uid, *pod.container_ids.values())}
        if containers and pods and not ids & _visible_containers():
            detail = "not visible: pods that share a GPU are charged by replicas, not by use"
            fix = "set hostPID: true, as in docs/howto/kubernetes.md"
            yield Check("processes of pods", "note", detail, fix)


def _visible_containers() -> set[str]:
    """Return the ids of containers and pods whose processes are visible here, besides the own ones."""
    from costprobe.adapters.kubernetes.cgroups import cgroup_ids  # noqa: PLC0415 - as above

    found: set[str] = set()
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        # A process may have ended.
        with suppress(OSError):
            found.update(cgroup_ids(file.read_text(errors="replace")))
    return found - {*cgroup_ids(Path("/proc/self/cgroup").read_text())}


def _endpoint_check(service: ServiceConfig, url: str, engine: Engine, tenant: str = "") -> Check:
    from costprobe.adapters.engines.exposition import ScrapeError  # noqa: PLC0415 - as above
    from costprobe.adapters.engines.scrape import MetricsFetcher, read_counters  # noqa: PLC0415

    name = f"tenants of {service.name}" if tenant else f"service {service.name}"
    fetch = MetricsFetcher(service)
    if unread := _unread(fetch, url):
        return Check(name, "note", f"{url}: {unread}", _SLEEPING)
    try:
        body = fetch(url)
        reading = read_counters(body, engine, service.models, service.model or "")
    except ScrapeError as error:
        enable = f"set {engine.option} at the server; " if engine.option else ""
        fix = f"{enable}docs/serving.md has the address and the option of each engine"
        return Check(name, "bad", f"{url}: {error}", fix)
    if not body.strip():
        fix = f"set {engine.option or 'the option that enables its metrics'} at the server"
        return Check(name, "bad", f"{url}: the page of metrics is empty", fix)
    measures = ", ".join(sorted(reading.measures)) or "nothing"
    bounds_ms = service.slo.bounds_ms if service.slo else {}
    if reading.missing:
        fix = f'check engine = "{service.engine}", or set engine = "generic" with its counters'
        if tenant:
            fix = "check gateway, or the names of the counters, in [service.tenants]"
        lacking = {*engine.required} - reading.measures.keys()
        if lacking and lacking <= bounds_ms.keys():
            fix = "remove these bounds of slo, or update the server: docs/serving.md has the histograms"
        lacks = "; ".join(reading.missing)
        return Check(name, "bad", f"{url}: counts {measures}; missing: {lacks}", fix)
    labels = {
        label
        for measure in reading.measures.values()
        for series in measure.series
        for label, _ in series
    }
    if tenant and labels and tenant not in labels:
        fix = f"set label to one of: {', '.join(sorted(labels))}"
        return Check(name, "bad", f"{url}: no counter has the label {tenant}", fix)
    edges_s = {bound: found.edge for bound, found in reading.measures.items() if bound in bounds_ms}
    measures += "".join(
        f"; {bound} up to {edge_s * 1000:g} ms, the edge of a bucket below {bounds_ms[bound]:g} ms"
        for bound, edge_s in edges_s.items()
        if edge_s is not None and edge_s * 1000 < bounds_ms[bound] * (1 - _ROUNDING)
    )
    check = _repeated_check(name, service, engine, fetch, url, f"{url}: counts {measures}")
    assumed = "" if tenant else _assumed_sizes(service, reading)
    if assumed and check.state == "good":
        fix = (
            "of LoRA adapters set parameters to the size of their base model; of other models state"
            " it in the served name"
        )
        check = check._replace(state="note", detail=f"{check.detail}; {assumed}", fix=fix)
    return check


def _assumed_sizes(service: ServiceConfig, reading: CounterReading) -> str:
    """Return which models share the cost by an assumed size, and others by theirs; empty for none."""
    measures = reading.measures
    counted_of = [value for found in measures.values() for value in found.series.values()]
    models = sorted({value.model for value in counted_of if value.model})
    assumed = [model for model in models if size_of(model) is None]
    by_tokens = "tokens_in" in measures and not measures.keys() & {"prefill_s", "compute_s"}
    is_set = service.parameters is not None or service.weight_out is not None
    if is_set or not by_tokens or len(assumed) in (0, len(models)):
        return ""
    others = f" and {len(assumed) - 1} more" * (len(assumed) > 1)
    return f"of {len(models)} models {assumed[0]}{others} share the cost as if of 8B parameters"


def _repeated_check(
    name: str, service: ServiceConfig, engine: Engine, fetch: MetricsFetcher, url: str, detail: str
) -> Check:
    """Check that several readings of a page are those of one process."""
    from costprobe.serving.meter import ServiceMeter  # noqa: PLC0415 - as above

    one = service.model_copy(update={"url": (url,)})
    meter = ServiceMeter(one, fetch, time.monotonic_ns, time.time_ns, engine=engine)
    problems = [problem for _ in range(_SCRAPES) for problem in meter.scrape().problems]
    if problems:
        return Check(name, "bad", problems[0], "list the address of each replica in url")
    timer = _TIMER * (fetch.look(url) == "kept awake")
    state: Literal["note", "good"] = "note" if timer else "good"
    return Check(name, state, f"{detail}{timer}", _SLEEPING if timer else "")


def _unread(fetch: MetricsFetcher, url: str) -> str:
    """Return why a page is not read, because that would start a server; empty if it is read."""
    if fetch.is_behind_activator(url):
        return "each reading is a request to Knative, which starts the server and keeps it running"
    return "its model is not loaded; a reading would load it" if fetch.look(url) == "asleep" else ""


TORCH_TIMEOUT_S: Final = 120.0
MAX_FACTS_CHARS: Final = 1 << 16
WRITE_FIX: Final = "let root alone write it and its folders: chown root, chmod go-w"
# Run in the interpreter of a probe, which may lack costprobe.
TORCH_PROGRAM: Final = PROBES_FOLDER / "torch_facts.py"
CUDA_DRIVER: Final = PROBES_FOLDER / "cuda_driver.py"


def torch_checks(probes: Sequence[AnyProbe]) -> Iterator[Check]:
    """Check torch in every interpreter of a probe that runs a model."""
    for python, modules in _by_interpreter(probes).items():
        yield from _torch_check(python, modules)


def module_problems(probes: Sequence[AnyProbe]) -> Iterator[str]:
    """Yield the probes whose module is not found by its interpreter; none of its code is run."""
    for python, models in _by_interpreter(probes).items():
        modules = [probe for probe in models if probe.module is not None]
        done = _run(python, "", modules) if modules else None
        if isinstance(done, subprocess.CompletedProcess):
            for check in _module_checks(modules, done.stdout.partition("\n")[0]):
                if check.state == "bad":
                    yield f"{check.name}: {check.detail}; {check.fix}"


def _by_interpreter(probes: Sequence[AnyProbe]) -> Mapping[str, Sequence[ProbeConfig]]:
    found: dict[str, list[ProbeConfig]] = {}
    for probe in probes:
        if isinstance(probe, ProbeConfig):
            found.setdefault(str(probe.python or sys.executable), []).append(probe)
    return dict(sorted(found.items()))


def _run(
    python: str, driver: str, modules: Sequence[ProbeConfig]
) -> subprocess.CompletedProcess[str] | Check:
    """Run TORCH_PROGRAM in an interpreter; return its result, or the check that says why there is none."""
    name = f"torch under {python}"
    writer = other_writer(Path(python), {ROOT})
    if os.geteuid() == ROOT and writer is not None:
        return Check(name, "bad", f"not run by root: {writer}", WRITE_FIX)
    names = [f"{probe.path or ''}:{str(probe.module).partition(':')[0]}" for probe in modules]
    try:
        return subprocess.run(  # noqa: S603 - the operator's own interpreter, no shell
            [python, "-c", TORCH_PROGRAM.read_text(), driver, *names],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            # Its own session, without a terminal: code of another user could type into that of root.
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=child_environment(os.environ),
            check=False,
        )
    except OSError as error:
        fix = "set python in [[probe]] to one with torch"
        return Check(name, "bad", str(error.strerror), fix)
    except subprocess.TimeoutExpired:
        words = f"no answer in {TORCH_TIMEOUT_S:.0f} s"
        return Check(name, "bad", words, "check whether the driver hangs: dmesg")


def _torch_check(python: str, probes: Sequence[ProbeConfig]) -> Iterator[Check]:
    """Import torch in an interpreter, and find the modules of probes without importing them."""
    modules = [probe for probe in probes if probe.module is not None]
    done = _run(python, str(CUDA_DRIVER), modules)
    if isinstance(done, Check):
        yield done
        return
    lines = done.stdout.strip().splitlines()
    yield from _module_checks(modules, (lines or [""])[0])
    name = f"torch under {python}"
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield Check(name, "bad", words, f"{python} -m pip install {' '.join(torch_arguments())}")
        return
    yield _found_torch(name, (lines or [""])[-1])


def _found_torch(name: str, line: str) -> Check:
    """Return the check by the last line of TORCH_PROGRAM's output."""
    try:
        facts = bounded_object(line, MAX_FACTS_CHARS)
        cuda, names, torch = facts["cuda"], ", ".join(facts["names"]), str(facts["torch"])
        problem = str(facts["problem"])
    except (ValueError, KeyError, TypeError):
        fix = "set python in [[probe]] to an interpreter, which prints nothing else"
        return Check(name, "bad", "its output is not that of our program", fix)
    if cuda:
        runtime = "ROCm" if facts["hip"] else "CUDA"
        return Check(name, "good", f"{torch}, {runtime} on {names}", "")
    if problem:
        return Check(name, "bad", f"{torch} cannot use CUDA", problem)
    if Path("/dev/nvidiactl").exists():
        fix = "install a CUDA build of torch that the driver supports"
        return Check(name, "bad", f"{torch} finds no CUDA device", fix)
    return Check(name, "good", f"{torch}, CPU only", "")


def _module_checks(probes: Sequence[ProbeConfig], line: str) -> Iterator[Check]:
    """Check that the modules of probes are found, and who may write them, at the places that an interpreter printed."""
    try:
        places = bounded_json(line)
        found = list(zip(probes, places, strict=True))
    except (TypeError, ValueError):
        return  # a wrapper that prints something else
    for probe, files in found:
        module = str(probe.module).partition(":")[0]
        if not files:
            detail = f"its interpreter does not find the module {module}"
            fix = "set path in [[probe]] to its folder, or python to the interpreter that has it"
            yield Check(f"probe {probe.name}", "bad", detail, fix)
        names = [file for file in files or () if isinstance(file, str)]
        yield from _write_checks((f"module {module}", Path(file)) for file in names)


def secret_checks(config: Config) -> Iterator[Check]:
    """Check that not every user of the host can read the files with secrets."""
    for key, secret in secret_places(config):
        with suppress(OSError):  # another check reports a file that cannot be read
            if secret.credential is None and secret.path.stat().st_mode & stat.S_IROTH:
                detail = f"every user of this host can read {secret.path}"
                yield Check(f"secret of {key}", "note", detail, f"chmod o= {secret.path}")


def write_checks(config_path: Path | None, config: Config) -> Iterator[Check]:
    """Check that others may write neither the configuration nor what it names: a writer decides what runs."""
    files = [*_named_files("", config), ("python", Path(sys.executable))]
    if config_path is not None:
        files.insert(0, ("configuration", config_path))
    problems = list(_write_checks(files))
    yield from problems
    if not problems:
        number = counted(len(files), "file")
        yield Check(
            "write access", "good", f"{number} and their folders: root and this user alone", ""
        )


def _write_checks(files: Iterable[tuple[str, Path]]) -> Iterator[Check]:
    for key, file in files:
        writer = other_writer(file, {ROOT, os.geteuid()})
        if writer is not None:
            detail = f"{file}: {writer}"
            yield Check(f"write access to {key}", "note", detail, WRITE_FIX)


def _named_files(key: str, value: object) -> Iterator[tuple[str, Path]]:
    """Yield the files that a part of the configuration names, except the store, with their keys."""
    if isinstance(value, Path):
        yield key, value
    elif isinstance(value, Secret) and value.credential is None:
        yield key, value.path
    elif isinstance(value, BaseModel) and not isinstance(value, StoreConfig):
        for name, field in value:
            inner = f"{key}.{name}" if key else name
            if name == "command" and field:
                yield inner, Path(shutil.which(field[0]) or field[0])
            elif name == "kind" and ":/" in str(field):
                yield inner, Path(str(field).partition(":")[2])
            else:
                yield from _named_files(inner, field)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _named_files(f"{key}[{index}]", item)


def device_notes(config: Config) -> Iterator[str]:
    """Devices that the file names and this host does not have now; a sensor process looks."""
    named = [(f"budget[{n}].device", one.device or "") for n, one in enumerate(config.budget)]
    named += [(f"price[{n}].device", one.device or "") for n, one in enumerate(config.price)]
    named += [
        (f"{key}[{index}].devices", device)
        for key, all_tables in (("probe", config.probe), ("service", config.service))
        for index, table in enumerate(all_tables)
        for device in (() if table.devices == "all" else table.devices)
    ]
    named = [(key, name) for key, name in named if name]
    devices = discovered_devices(config.telemetry) if named else ()
    present = {device.name for device in devices}
    there = ", ".join(sorted(present, key=natural)) or "none"
    unknown: dict[str, list[str]] = {}
    for key, name in named:
        if name not in {*present, *(device.uuid for device in devices)}:
            unknown.setdefault(key, []).append(name)
    for key, names in unknown.items():
        yield f"{key}: this host has no device {' or '.join(names)} now; devices: {there}"


def source_file_findings(config: Config) -> tuple[list[str], list[str]]:
    """Check the files of prices and carbon intensities, as the daemon will read them.

    Returns:
        Errors of files with content that the daemon would refuse, and notes on files that cannot be
        read now: `key.path: what is wrong`.
    """
    sources: list[tuple[str, SourceConfig, Callable[[str, int], object]]] = [
        (f"price[{index}].file", plan, partial(parse_spot, currency=plan.currency))
        for index, plan in enumerate(config.price)
        if isinstance(plan, FeedPlan)
    ]
    if config.carbon is not None:
        sources.append(("carbon.file", config.carbon, parse_carbon))
    problems, notes = [], []
    for key, source, parse in sources:
        if source.file is not None:
            try:
                parse(read_output(source), time.time_ns())
            except SourceError as error:
                notes.append(f"{key}: {error}")
            except ValueError as error:
                problems.append(f"{key}: {source.file}: {error}")
    return problems, notes
