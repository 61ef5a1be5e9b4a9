"""One probe run: the result of the child joined with the sensors' measurements.

A request to the child is the probe's section of the configuration, and what one run adds. Starts
of a model are repeated, with its files in the page cache and after they were evicted from it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from threading import Event
from typing import Any, Final

from costprobe.adapters.host.files import ROOT, other_writer
from costprobe.adapters.host.redaction import read_secret
from costprobe.adapters.http.access import secret_places
from costprobe.adapters.probe_child.results import (
    ModelStart,
    ProbeFault,
    ProbeProgress,
    ProbeResult,
)
from costprobe.adapters.probe_child.runner import (
    LOAD_COMMAND,
    ProbeRequest,
    ProbeRunner,
    device_lock,
    reaches_mps,
    worker_command,
)
from costprobe.adapters.sensors.messages import Absent, Activity, worst_of
from costprobe.adapters.store.ledger import Ledger, restored
from costprobe.core.records import DEVICE_KINDS, NS_PER_S, TOGETHER, Device, Energy
from costprobe.devices.use import DeviceWindows, ProbeRuns, energy_sum, with_sampling_error
from costprobe.pricing.catalogue import GpuModel
from costprobe.pricing.catalogue_files import gpu_names
from costprobe.probing.cost import ProbeRun
from costprobe.probing.load_curve import LoadStep
from costprobe.probing.load_settings import length_document
from costprobe.probing.roofline import pass_limit
from costprobe.probing.settings import (
    HttpProbeConfig,
    KserveProbeConfig,
    ProbeConfig,
    ServedProbeConfig,
    TensorConfig,
)

# Of weights, inputs and the server's sampling.
SEED: Final = 0
# Longest time in s for which the load continues after the steady-state window.
TAIL_S: Final = 2.0
# Requests in the window of a point of a load curve: so many give a p90.
LOAD_SAMPLES: Final = 64

MIB: Final = 1 << 20
# Least share of the evicted bytes that a cold start reads from storage: of a library only the parts
# that are used are read.
COLD_SHARE_MIN: Final = 0.1

AnyProbe = ProbeConfig | ServedProbeConfig

ANSWER_TIMEOUT_S = 10.0
# The load of a device is that of this time before now, in ns.
LOAD_SPAN_NS = 2 * NS_PER_S
# All metrics are still sampled for this time after a run, in s, so that a short run has a sample.
WATCH_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """Starts of a model.

    Attributes:
        warm: With the files that a start reads in the page cache.
        cold: Without; fewer if they could not be evicted each time.
        not_cold: Why there are fewer; empty if there are not.
    """

    warm: tuple[ModelStart, ...]
    cold: tuple[ModelStart, ...]
    not_cold: str = ""


# Starts the model once; with `list_files` it reports the files that it read.
Start = Callable[..., ModelStart | ProbeFault]


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The devices of one run: one for a model, one or several for a server.

    Attributes:
        devices: At least one.
    """

    devices: tuple[Device, ...]

    @property
    def name(self) -> str:
        """The tag `device` of its rows: "gpu0", or "gpu0+gpu1" for a group."""
        return TOGETHER.join(device.name for device in self.devices)

    @property
    def board(self) -> str:
        """Identities of its boards; empty for a CPU or MIG devices, whose identity may change."""
        has_one = all(device.is_board for device in self.devices)
        return TOGETHER.join(device.uuid for device in self.devices) if has_one else ""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for probe runs.

    Attributes:
        on_progress: Receives the phases of a run.
        on_report: Receives the report of a run.
        on_fault: Receives the fault of a run without a result.
    """

    on_progress: Callable[[AnyProbe, ProbeTarget, ProbeProgress], None]
    on_report: Callable[[ProbeRun], None]
    on_fault: Callable[[AnyProbe, ProbeTarget, ProbeFault], None]


def targets(probe: AnyProbe, devices: Sequence[Device]) -> list[ProbeTarget]:
    """Return a target for each device of a model's probe, or one for all devices of a server.

    A board that is partitioned into MIG devices is not a target, because it cannot run a model.
    """
    divided = {device.parent for device in devices}
    chosen = [
        device
        for device in devices
        if (
            device.name not in divided
            if probe.devices == "all"
            else device.name in probe.devices or device.uuid in probe.devices
        )
    ]
    if isinstance(probe, ProbeConfig):
        return [ProbeTarget((device,)) for device in chosen]
    return [ProbeTarget(tuple(chosen))] if chosen else []


class Measurer:
    """Run probes, and query the sensors for energy and activity of the devices meanwhile.

    Args:
        sensor: Answers for the windows of the devices.
        ledger: Stores the best batch of each device, model and software.
        lock_folder: Folder of the devices' lock files.
        stop: Ends a run.
        now_ns: CLOCK_MONOTONIC ns.
        runs: Records when models run on a device; None for no record.
    """

    def __init__(
        self,
        sensor: DeviceWindows,
        ledger: Ledger,
        lock_folder: Path,
        stop: Event,
        now_ns: Callable[[], int],
        runs: ProbeRuns | None = None,
    ) -> None:
        self._sensor = sensor
        self._ledger = ledger
        self._lock_folder = lock_folder
        self._stop = stop
        self._now_ns = now_ns
        self._runs = runs
        self._runners: dict[tuple[str, str], ProbeRunner] = {}

    def run(
        self,
        probe: AnyProbe,
        target: ProbeTarget,
        *,
        energy: bool,
        on_progress: Callable[[ProbeProgress], None],
        search_anew: bool = False,
        naive: bool = False,
        load: LoadStep | None = None,
    ) -> ProbeRun | ProbeFault:
        """Run a probe once, with no other probe of costprobe on its devices.

        Args:
            probe: The probe.
            target: Its devices.
            energy: True for a run with an energy window.
            on_progress: Called with the run's progress.
            search_anew: True to search the batch even if a result is stored.
            naive: True to measure a model with common mistakes of timing, too.
            load: Point of a load curve that a run against a server measures.
        """
        with ExitStack() as locks:
            # Locked in the order of their names, which prevents a deadlock of two runs.
            for device in sorted(target.devices, key=lambda device: device.name):
                lock = device_lock(self._lock_folder, device.name, self._stop, probe.every_s)
                is_locked = locks.enter_context(lock)
                if self._stop.is_set():
                    return ProbeFault("cancelled", "the run was ended", ())
                if not is_locked:
                    return ProbeFault("busy", f"another probe was using {device.name}", ())
            if isinstance(probe, ProbeConfig):
                refusal = self._refusal(probe, target.devices[0])
                if refusal is not None:
                    return refusal
            # The cost of a probe of a server is allocated to the requests of the service.
            runs = self._runs if isinstance(probe, ProbeConfig) else None
            if runs is not None:
                runs.begin(target.name, self._now_ns())
            outcome: ProbeResult | ProbeFault | None = None
            self._watch(target.devices, probe.deadline_s)
            try:
                outcome = self._runner(probe, target).run(
                    served_request(probe, energy=energy, load=load)
                    if not isinstance(probe, ProbeConfig)
                    else model_request(
                        probe,
                        target.devices[0],
                        {} if search_anew else self._known_batch(probe, target.devices[0]),
                        energy=energy,
                        naive=naive,
                    ),
                    target.name,
                    on_edge=lambda: self._mark(target.devices, probe.deadline_s),
                    on_progress=on_progress,
                )
            finally:
                self._watch(target.devices, WATCH_AFTER_S)
                if runs is not None:
                    runs.end(target.name, self._now_ns(), outcome)
        if isinstance(outcome, ProbeFault):
            return outcome
        if isinstance(probe, ProbeConfig) and probe.batch == "auto" and outcome.curve:
            # Also one that was found beside other work: a series whose batch changed from run to run
            # would have no level.
            found = {"batch": outcome.batch, "fingerprint": outcome.fingerprint}
            self._ledger.put_state(_batch_name(probe, target.devices[0]), found)
        return self._joined(probe, target, outcome)

    def start(
        self,
        probe: ProbeConfig,
        device: Device,
        *,
        list_files: bool,
        on_progress: Callable[[ProbeProgress], None],
    ) -> ModelStart | ProbeFault:
        """Start a probe's model in a new process, with no other probe of costprobe on its device.

        Args:
            probe: The probe.
            device: Its device.
            list_files: Whether the files that the start reads are reported, which delays it.
            on_progress: Called with its progress.
        """
        with device_lock(self._lock_folder, device.name, self._stop, probe.every_s) as is_locked:
            if not is_locked:
                return ProbeFault("busy", f"another probe was using {device.name}", ())
            refusal = self._refusal(probe, device)
            if refusal is not None:
                return refusal
            request = model_request(probe, device, {}, energy=False)
            document = {**request.document, "cold_start": True, "list_files": list_files}
            return self._runner(probe, ProbeTarget((device,))).start(
                replace(request, document=document), on_progress=on_progress
            )

    def is_busy(self, device: Device) -> bool:
        """Return whether a probe would compete with another process, as far as is known."""
        return is_busy(self._load(device), DEVICE_KINDS[device.kind].busy_share)

    def _load(self, device: Device, own_pids: Sequence[int] = ()) -> Activity:
        """Return the recent load on a device, except by processes of our own."""
        now_ns = self._now_ns()
        return self._sensor.activity(
            device.name,
            now_ns - LOAD_SPAN_NS,
            now_ns,
            own_pids=tuple(own_pids),
            timeout_s=ANSWER_TIMEOUT_S,
        )

    def _refusal(self, probe: ProbeConfig, device: Device) -> ProbeFault | None:
        """Return why a model may not run: root would run code of others, or a GPU has a process already."""
        writer = other_writer(probe.code, {ROOT}) if probe.code and os.geteuid() == ROOT else None
        if writer is not None:
            fix = "run as that user, or let root alone write it: chown root, chmod go-w"
            return ProbeFault("config", f"root does not run {probe.code}: {writer}; {fix}", ())
        if not device.is_exclusive or reaches_mps(os.environ):
            return None
        own_pids = [pid for runner in list(self._runners.values()) for pid in runner.pids]
        if not self._load(device, own_pids).is_open:
            return None
        fix = f"let this program reach MPS, or run nvidia-smi -i {visible_gpu(device)} -c DEFAULT"
        title = f"{device.name} is in compute mode EXCLUSIVE_PROCESS, and another process has it"
        return ProbeFault("busy", f"{title}: {fix}", ())

    def is_ended_within(self, seconds: float) -> bool:
        """Wait; return True as soon as runs have to end."""
        return self._stop.wait(seconds)

    def close(self) -> None:
        """End the children that are kept alive."""
        for runner in self._runners.values():
            runner.close()

    def _watch(self, devices: Sequence[Device], for_s: float) -> None:
        """Request that the sensors sample all metrics of the devices for a time."""
        until_ns = self._now_ns() + int(for_s * NS_PER_S)
        for device in devices:
            self._sensor.watch(device.name, until_ns)

    def _mark(self, devices: Sequence[Device], deadline_s: float) -> None:
        """Request a reading at an edge of the window; a failure is reported by the energy answer."""
        for device in devices:
            self._sensor.mark(device.name)
        # Compilation extends a run beyond the deadline that it began with.
        self._watch(devices, deadline_s)

    def _runner(self, probe: AnyProbe, target: ProbeTarget) -> ProbeRunner:
        key = (probe.name, target.name)
        if key not in self._runners:
            command, keeps_child = LOAD_COMMAND, False
            if isinstance(probe, ProbeConfig):
                # A model may need another interpreter.
                command = worker_command(str(probe.python or sys.executable))
                keeps_child = probe.keep_alive
            self._runners[key] = ProbeRunner(
                command, probe.deadline_s, self._stop, keep_alive=keeps_child
            )
        return self._runners[key]

    def _known_batch(self, probe: ProbeConfig, device: Device) -> Mapping[str, Any]:
        """Return the stored result of a batch search; empty if there is none."""
        return restored(self._ledger, _batch_name(probe, device), dict) or {}

    def _joined(
        self, probe: AnyProbe, target: ProbeTarget, result: ProbeResult
    ) -> ProbeRun | ProbeFault:
        energies: list[Energy | Absent] = [Absent("this run had no energy window")]
        if result.has_energy_window:
            energies = [self._energy(device, result) for device in target.devices]
        absent = next((each.reason for each in energies if isinstance(each, Absent)), "")
        known = [each for each in energies if isinstance(each, Energy)]
        activity = worst_of([self._activity(device, result) for device in target.devices])
        if self._stop.is_set() and not all(self._sensor.is_read(d.name) for d in target.devices):
            # The daemon stops, and its store may be closed.
            return ProbeFault("cancelled", "the run was ended", ())
        if not isinstance(probe, ProbeConfig):
            # The server is the other process.
            activity = activity.without_neighbour()
        if result.contention.contended is not None:
            activity = replace(activity, contended=result.contention.contended)
        if not activity.contended:
            result = replace(result, pass_low_ms=None, pass_high_ms=None)
        return ProbeRun(
            **{each.name: getattr(result, each.name) for each in fields(result)},
            every_s=probe.every_s,
            board=target.board,
            limit=pass_limit(result, _gpu_of(target)),
            activity=activity.fields(),
            # Of devices that work as one: if one energy is absent, the sum is.
            window_energy=energy_sum(known) if len(known) == len(energies) else None,
            energy_absent=absent,
        )

    def _energy(self, device: Device, result: ProbeResult) -> Energy | Absent:
        energy = self._sensor.energy(
            device.name,
            result.window_start_ns,
            result.window_end_ns,
            result.steady_start_ns,
            result.steady_end_ns,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        if isinstance(energy, Absent):
            return energy
        return with_sampling_error(energy, device, result)

    def _activity(self, device: Device, result: ProbeResult) -> Activity:
        return self._sensor.activity(
            device.name,
            result.window_start_ns,
            result.window_end_ns,
            own_pids=result.pids,
            timeout_s=ANSWER_TIMEOUT_S,
        )


def is_busy(activity: Activity, above_share: float) -> bool:
    """Return whether a device has other work.

    A process that only holds memory of an idle device does not defer a probe. If utilization is
    unknown, as on a MIG device, one that processes used recently counts as busy.

    Args:
        activity: Its conditions of late.
        above_share: A device is busy above this share of utilization.
    """
    if activity.util_pct is not None:
        return activity.util_pct > above_share * 100
    return bool(activity.contended)


def _gpu_of(target: ProbeTarget) -> GpuModel | None:
    """Return the model of the board that a target is; None for a part of one, a CPU or a group."""
    if len(target.devices) > 1 or not target.devices[0].is_board:
        return None
    return gpu_names().named(target.devices[0].model, target.devices[0].memory_bytes)


def _batch_name(probe: ProbeConfig, device: Device) -> str:
    """Return the name under which a batch search's result is stored.

    It is valid for one device, model and latency bound; the worker checks the software.
    """
    bound = "" if probe.latency_bound_s is None else f" within {probe.latency_bound_s:g} s"
    return f"batch {device.uuid} {probe.name} {probe.identity} {probe.measured_dtype}{bound}"


def model_request(
    probe: ProbeConfig,
    device: Device,
    remembered: Mapping[str, Any],
    *,
    energy: bool,
    naive: bool = False,
) -> ProbeRequest:
    """Return the request for a run of a model.

    Args:
        probe: The probe.
        device: Its device.
        remembered: Stored result of an earlier batch search, with its `batch` and `fingerprint`:
            other software needs a new search; empty if there is none.
        energy: True for a run with an energy window.
        naive: True to measure with common mistakes of timing, too.
    """
    run = {
        "kind": probe.source,
        "model": probe.model,
        "dtype": probe.measured_dtype,
        "energy": energy and probe.carries_energy,
        "naive": naive,
        "torch_device": "cpu" if device.is_host else "cuda:0",
        "known_batch": remembered.get("batch"),
        "known_fingerprint": remembered.get("fingerprint"),
        "tail_s": TAIL_S,
        "seed": SEED,
    }
    visible = None if device.is_host or device.selector else visible_gpu(device)
    return ProbeRequest(probe.name, {**probe.model_dump(), **run}, visible, device.selector)


def visible_gpu(device: Device) -> str:
    """Return a GPU as CUDA_VISIBLE_DEVICES names it.

    A UUID without the usual prefix, as of a Jetson, would be read as the number that it begins with: such
    a GPU is named by its own number, that of NVML.
    """
    if device.uuid.startswith(("GPU-", "MIG-")):
        return device.uuid
    return device.name.removeprefix("gpu")


def served_request(
    probe: ServedProbeConfig, *, energy: bool, load: LoadStep | None = None
) -> ProbeRequest:
    """Return the request for a run against a server.

    Args:
        probe: The probe.
        energy: True for a run with an energy window.
        load: Point of a load curve that the run measures; None for a run of the probe.
    """
    secret_files: dict[str, str | None] = {"token_file": None, "key_file": None}
    for key, secret in secret_places(probe):
        secret_files[f"{key}_file"] = str(secret.path)
        # The child reads it; here the redactor learns it. The child reports why it cannot.
        with suppress(ValueError):
            read_secret(secret.path, secret.purpose)
    run: dict[str, Any] = {
        "energy": energy and probe.energy,
        **secret_files,
        "tail_s": TAIL_S,
        "seed": SEED,
        "load": None if load is None else _load_document(probe, load),
    }
    if isinstance(probe, KserveProbeConfig):
        run["inputs"] = [_tensor(tensor) for tensor in probe.inputs]
    if isinstance(probe, HttpProbeConfig):
        run["model"] = probe.url
    return ProbeRequest(probe.name, {**probe.model_dump(exclude={"token", "key"}), **run})


def _load_document(probe: ServedProbeConfig, step: LoadStep) -> dict[str, Any]:
    """Return what the worker reads of a load curve and of one of its points."""
    config = probe.load_curve
    lengths = {"tokens_in": config.tokens_in, "tokens_out": config.tokens_out}
    bounds_ms: dict[str, float] = {}
    # An answer is good within the longest bound of each figure.
    for name, bound_ms in (probe.slo.bounds_ms if probe.slo else {}).items():
        figure = name.partition("_")[0]
        bounds_ms[figure] = max(bound_ms, bounds_ms.get(figure, 0.0))
    return {
        **config.model_dump(include={"warmup_s", "window_s", "ignore_eos", "prompts"}),
        "window_max_s": config.window_max_s,
        **{
            name: None if length is None else length_document(length)
            for name, length in lengths.items()
        },
        "shared_prefix": config.shared_prefix or 0.0,
        "samples": LOAD_SAMPLES,
        "slo_ms": bounds_ms,
        "loop": step.loop,
        "concurrency": step.concurrency or config.concurrency_max,
        "rate_per_s": step.rate_per_s,
        # Each point has another schedule; a repeated curve has the same ones.
        "seed": step.number,
    }


def _tensor(tensor: TensorConfig) -> dict[str, Any]:
    data = tensor.data or (tensor.fill,) * math.prod(tensor.shape)
    described = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    return {**described, "data": list(data)}


def measured_starts(
    start: Start, evict: Callable[[Iterable[Path]], int], runs: int
) -> ColdStarts | ProbeFault:
    """Measure starts, with a warm and a cold page cache in turn.

    The first start is not measured: it fills the page cache, and lists the files.

    Args:
        start: Starts the model, with the files that it read if `list_files`.
        evict: Evicts files from the page cache, and returns their size in bytes.
        runs: Number of starts with each state of the page cache.
    """
    first = start(list_files=True)
    if isinstance(first, ProbeFault):
        return first
    warm: list[ModelStart] = []
    cold: list[ModelStart] = []
    not_cold = ""
    for number in range(2 * runs):
        evicted_bytes = evict(first.paths) if number % 2 else None
        outcome = start(list_files=False)
        if isinstance(outcome, ProbeFault):
            return outcome
        if evicted_bytes is None:
            warm.append(outcome)
        elif reason := _why_not_cold(outcome.read_bytes, evicted_bytes):
            not_cold = reason
        else:
            cold.append(outcome)
    return ColdStarts(tuple(warm), tuple(cold), not_cold)


def _why_not_cold(read_bytes: int | None, evicted_bytes: int) -> str:
    """Return why a start was not cold, by what it read from storage; empty if it was."""
    if read_bytes is None:
        return "the kernel does not count what a process reads from storage (/proc/self/io)"
    if read_bytes < COLD_SHARE_MIN * evicted_bytes or not evicted_bytes:
        return (
            f"{read_bytes / MIB:,.0f} of {evicted_bytes / MIB:,.0f} MiB were read from storage: the"
            " files are in use by other processes, or in memory (tmpfs)"
        )
    return ""
