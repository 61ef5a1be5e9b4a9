"""All GPUs of a fleet with their deviation from peers, and the outliers among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers
from costprobe.app.fleet.outliers import fleet_outliers
from costprobe.core.device_names import natural
from costprobe.domain.fleet.gpu_excess import GpuExcess, gpu_excesses
from costprobe.domain.fleet.outliers import FleetOutliers

_KINDS: Final = ("gpu", "mig")
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
