"""GPUs of a fleet that deviate from their peers, and the deviation of every GPU.

The levels of the GPUs are aggregated by the database.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from costprobe.adapters.databases.question import Question
from costprobe.core.records import SOFTWARE_TAGS, FieldValue, natural
from costprobe.core.schema import SCHEMA
from costprobe.core.units import HOUR_S
from costprobe.drift.runs import DetectionRun
from costprobe.fleet.answers import COARSE_S, FleetAnswers, Group
from costprobe.fleet.peers import FleetOutliers, GpuExcess, GpuLevel, gpu_excesses, outliers_of

# Fewer runs in the period are no level.
LEAST_RUNS: Final = 5
# A series of runs: a probe in one mode on a device.
_RUNS: Final = ("host", *SCHEMA["probe"].tags)
_KINDS: Final = ("gpu", "mig")
# Conditions of the device, and how they are aggregated over its runs.
_CONDITIONS: Final[Mapping[str, Literal["mean", "max", "share"]]] = {
    "sm_clock_mhz": "mean",
    "mem_clock_mhz": "mean",
    "power_limit_w": "mean",
    "throttled_thermal_pct": "mean",
    "throttled_power_pct": "mean",
    "temp_max_c": "mean",
    "mem_used_pct": "mean",
    "ecc_uncorrected": "max",
    "contended": "share",
}
# From so many hosts on, those of outliers and their peers are not listed in a question.
_HOSTS_MAX: Final = 200

_UNTESTED: Final = GpuExcess(None, None, is_listed=False)


@dataclass(frozen=True, slots=True)
class MappedGpu:
    """A GPU that sent rows in the period.

    Attributes:
        host: Its host.
        device: Its device id.
        model: Its product name.
        label: Value of the label that hosts are grouped by; empty without one.
        excess: Its excess over its peers.
    """

    host: str
    device: str
    model: str
    label: str
    excess: GpuExcess


@dataclass(frozen=True, slots=True)
class GpuMap:
    """The GPUs of a fleet.

    Attributes:
        gpus: All of them, by host and device.
        outliers: Those that deviate.
    """

    gpus: tuple[MappedGpu, ...]
    outliers: FleetOutliers


def fleet_outliers(answers: FleetAnswers, within: Sequence[str] = ()) -> FleetOutliers:
    """Return the GPUs that need more time or energy per inference than their peers.

    Peers have the same GPU model, probe, batch, execution mode and, where the database has rows of
    `software`, the same driver, PyTorch, CUDA, dtype and weights. GPUs with fewer than 5 runs, and those whose
    software or model changed in the period, are no peers.

    Args:
        answers: The database, and the period.
        within: Labels whose levels are removed, such as a cooling row or a lot.

    Raises:
        DeliveryError: The database did not answer.
    """
    questions = _level_questions(answers)
    found = answers.each(*questions, *_device_questions(within))
    devices = _Devices(found[len(questions) :], within)
    levels = _levels(answers, found[: len(questions)], devices)
    series = {(gpu.host, gpu.device, gpu.peers): group for group, gpu in levels.items()}

    def with_details(gpus: Sequence[GpuLevel]) -> list[GpuLevel]:
        hosts = tuple(sorted({gpu.host for gpu in gpus}))
        details = _Details(answers, hosts if len(hosts) <= _HOSTS_MAX else ())
        return [details.added(gpu, series[gpu.host, gpu.device, gpu.peers]) for gpu in gpus]

    outliers = outliers_of(list(levels.values()), within, with_details)
    updated = {key[:2] for key in devices.updated} | devices.replaced
    return dataclasses.replace(outliers, updated=len(updated))


def _level_questions(answers: FleetAnswers) -> tuple[Question, ...]:
    is_long = answers.period.bucket_s >= COARSE_S
    return (
        Question("probe", "throughput_per_s", "median", "median", by=_RUNS),
        Question("probe", "energy_per_inference_j", "median", "median", by=_RUNS),
        # Of longer periods the hours with a run: the rows themselves would be many.
        Question("probe", "throughput_per_s", "covered" if is_long else "count", by=_RUNS),
    )


def _levels(
    answers: FleetAnswers, of_runs: Sequence[Mapping[Group, float]], devices: _Devices
) -> dict[Group, GpuLevel]:
    """Return the level of each probe on each GPU, without prices and conditions, by its series of runs.

    Args:
        answers: For the period.
        of_runs: The answers to `_level_questions`.
        devices: The GPUs.
    """
    rates, energies, counts = of_runs
    found = {}
    for group, rate in rates.items():
        host, device, probe, batch, *mode = group
        model = devices.models.get((host, device))
        runs = int(counts.get(group, 0))
        is_updated = (host, device, probe) in devices.updated or (host, device) in devices.replaced
        if model is None or rate <= 0 or runs < LEAST_RUNS or is_updated:
            continue
        run = DetectionRun(
            time_ns=answers.period.end_ns,
            batch=int(batch) if batch.isdigit() else None,
            time_s=1 / rate,
            energy_j=energies.get(group),
            price_per_s=None,
            electricity_per_j=0.0,
            fingerprint="",
            device={},
        )
        modes = [
            f"{name}={value}" if value != "true" else name
            for name, value in zip(_RUNS[4:], mode, strict=True)
            if value
        ]
        peers = (model, probe, f"batch {batch}" if batch else "", " ".join(modes))
        software = devices.software.get((host, device, probe), "")
        found[group] = GpuLevel(
            host,
            device,
            (*(part for part in peers if part), software),
            run,
            runs,
            devices.labels.get(host, {}),
            devices.busy.get((host, device)),
        )
    return found


def _device_questions(labels: Sequence[str]) -> tuple[Question, ...]:
    runs = ("host", "device", "probe", *SOFTWARE_TAGS)
    hosts = Question("device", "util_pct", "max", "max", by=("host", *labels))
    return (
        Question("device", "util_pct", "mean", "mean", by=("host", "device", "model", "kind")),
        Question("software", "probe_runs", "max", "max", by=runs),
        *([hosts] if labels else []),
    )


class _Devices:
    """What is known of the devices beside their runs, each by host and device.

    Args:
        found: The answers to `_device_questions`.
        labels: Names of the labels.
    """

    def __init__(self, found: Sequence[Mapping[Group, float]], labels: Sequence[str]) -> None:
        self.models: dict[Group, str] = {}
        self.busy: dict[Group, float] = {}
        self.replaced: set[Group] = set()
        used, software, *labelled = found
        for (host, device, model, kind), util_pct in used.items():
            if kind in _KINDS and model:
                if self.models.setdefault((host, device), model) != model:
                    self.replaced.add((host, device))
                self.busy[host, device] = util_pct / 100
        self.software: dict[Group, str] = {}
        self.updated: set[Group] = set()
        for key, versions in _software(software).items():
            self.software[key] = min(versions)
            if len(versions) > 1:
                self.updated.add(key)
        self.labels: dict[str, dict[str, str]] = {
            host: dict(zip(labels, values, strict=True))
            for groups in labelled
            for host, *values in groups
        }


def _software(groups: Iterable[Group]) -> dict[Group, set[str]]:
    """Return the software by host, device and probe; after a change in the period more than one."""
    found: dict[Group, set[str]] = defaultdict(set)
    for group in groups:
        versions = [
            f"{tag} {value}" for tag, value in zip(SOFTWARE_TAGS, group[3:], strict=True) if value
        ]
        found[group[:3]].add(", ".join(versions))
    return found


class _Details:
    """Prices and conditions of devices.

    Args:
        answers: The database, and the period.
        hosts: Their hosts; empty for all.
    """

    def __init__(self, answers: FleetAnswers, hosts: tuple[str, ...]) -> None:
        devices = ("host", "device")
        median = partial(Question, over_time="median", across="median", hosts=hosts)
        rates = median("device", "price_rate_per_h", by=(*devices, "currency"))
        paid = median("cost", "cost_energy", by=(*devices, "probe"), where={"basis": "probe"})
        conditions = (
            Question("probe", field, how, "max" if how == "max" else "mean", by=_RUNS, hosts=hosts)
            for field, how in _CONDITIONS.items()
        )
        prices, self._electricity, *found = answers.each(rates, paid, *conditions)
        self._prices = {group[:2]: (rate / HOUR_S, group[2]) for group, rate in prices.items()}
        self._conditions: dict[Group, dict[str, FieldValue]] = defaultdict(dict)
        for (field, how), groups in zip(_CONDITIONS.items(), found, strict=True):
            for group, value in groups.items():
                self._conditions[group][field] = int(value) if how == "max" else value

    def added(self, gpu: GpuLevel, series: Group) -> GpuLevel:
        """Return a level with what is known of its device."""
        price_per_s, currency = self._prices.get((gpu.host, gpu.device), (None, ""))
        paid = self._electricity.get(series[:3], 0.0)
        energy_j = gpu.run.energy_j
        run = dataclasses.replace(
            gpu.run,
            price_per_s=price_per_s,
            electricity_per_j=paid / energy_j if energy_j else 0.0,
            device=self._conditions.get(series, {}),
            currency=currency,
        )
        return dataclasses.replace(gpu, run=run)


def fleet_gpu_map(answers: FleetAnswers, label: str = "", within: str = "") -> GpuMap:
    """Return all GPUs of a fleet with what they need more than their peers.

    Args:
        answers: The database, and the period.
        label: Label to group the hosts by; empty for none.
        within: Label whose levels are removed, as by `fleet_outliers`; empty for none.

    Raises:
        DeliveryError: The database did not answer.
    """
    tags = ("host", "device", "model", "kind", *([label] if label else []))
    groups = answers.groups(Question("device", "util_pct", "max", "max", by=tags))
    outliers = fleet_outliers(answers, [within] if within else [])
    excesses = gpu_excesses(outliers)
    gpus = {
        (host, device): MappedGpu(
            host,
            device,
            model,
            rest[0] if rest else "",
            excesses.get((host, device), _UNTESTED),
        )
        for host, device, model, kind, *rest in groups
        if kind in _KINDS
    }
    return GpuMap(tuple(gpus[key] for key in sorted(gpus, key=lambda key: natural(*key))), outliers)
