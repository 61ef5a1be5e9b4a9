"""The models of probes on the GPU models of a fleet, by batch: one for all devices with the same GPU.

A probe without rows of `software` is of a server, whose requests are no passes. The rows have no latency bound
of a probe, and of a server neither its model nor its service level.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from costprobe.adapters.databases.question import Question
from costprobe.core.records import natural
from costprobe.fleet.answers import FleetAnswers

_PLACE: Final = ("host", "device", "probe")
_PLACED_BATCH: Final = (*_PLACE, "batch")
# Runs without a variant, and points of sweeps over batches.
_PLAIN: Final = dict.fromkeys(("cold", "compile", "cuda_graph", "weights", "concurrency"), "")
_SWEPT: Final = {"loop": ""}
_FIGURES: Final = ("latency_p50_ms", "throughput_per_s", "energy_per_inference_j")
_COUNTED: Final = ("flop_per_pass", "mfu_pct", "bytes_per_pass")
_USED: Final = "mem_used_pct"
_PEAK: Final = "peak_memory_bytes"


@dataclass(frozen=True, slots=True)
class FleetBatch:
    """A batch of a model on a GPU model.

    Attributes:
        batch: Items per pass.
        devices: Devices that ran it; 0 if it is of sweeps only.
        figures: Medians over devices of each one's median, of memory of its largest value, by the names of
            the fields; the latency is one of them.
    """

    batch: int
    devices: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FleetModel:
    """A model on a GPU model.

    Attributes:
        probe: Name of the probe.
        gpu_model: Name of the boards.
        memory_bytes: Memory of a board; None if unknown.
        devices: Devices that ran it.
        dtype: Type of its weights; empty if it is unknown, or not the same on all.
        batches: The batch that most devices run first, then others, ascending.
        cost: Cost of an inference and its currency; None without a price, or in several currencies.
    """

    probe: str
    gpu_model: str
    memory_bytes: int | None
    devices: int
    dtype: str
    batches: tuple[FleetBatch, ...]
    cost: tuple[float, str] | None


def fleet_models(answers: FleetAnswers) -> tuple[list[FleetModel], list[str]]:
    """Return the models of probes on each GPU model, and the names of the probes of servers.

    Args:
        answers: The database, and the period.

    Raises:
        DeliveryError: The database did not answer.
    """
    gpus: dict[str, Any] = {"by": ("host", "device", "model"), "where": {"kind": "gpu"}}
    runs: dict[str, Any] = {"by": _PLACED_BATCH, "where": _PLAIN}
    sweeps: dict[str, Any] = {"by": _PLACED_BATCH, "where": _SWEPT}
    paid: dict[str, Any] = {"by": (*_PLACE, "currency"), "where": {"basis": "probe"}}
    fields = (*_FIGURES, *_COUNTED)
    memory, seen, typed, costs, *found = answers.each(
        Question("device", "mem_total_bytes", "max", "max", **gpus),
        Question("device", "cost", "count", "count", **gpus),
        Question("software", "probe_runs", "count", "count", by=(*_PLACE, "dtype")),
        Question("cost", "cost_per_inference", "median", "median", **paid),
        *(Question("probe", field, "median", "median", **runs) for field in fields),
        Question("probe", _USED, "max", "max", **runs),
        *(Question("sweep", field, "median", "median", **sweeps) for field in _FIGURES),
        Question("sweep", _PEAK, "max", "max", **sweeps),
    )
    boards = {(host, device): model for host, device, model in (*seen, *memory)}
    named = [*fields, _USED, *(f"sweep {field}" for field in _FIGURES), _PEAK]
    values: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = defaultdict(dict)
    users: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for field, groups in zip(named, found, strict=True):
        for (host, device, probe, batch), value in groups.items():
            if (host, device) in boards and batch.isdigit():
                key = probe, boards[host, device]
                of_batch = values[key].setdefault(int(batch), defaultdict(list))
                of_batch[field].append(value)
                users[key].add((host, device))
    models = []
    of_models = {probe for _, _, probe, _ in typed}
    for (probe, gpu), batches in sorted(values.items(), key=lambda one: natural(*one[0])):
        if probe in of_models:
            own = {(*place, probe) for place in users[probe, gpu]}
            amounts = {key: cost for key, cost in costs.items() if key[:3] in own}
            currencies = {key[3] for key in amounts}
            dtypes = {key[3] for key in typed if key[:3] in own}
            totals = [value for (*_, model), value in memory.items() if model == gpu]
            models.append(
                FleetModel(
                    probe,
                    gpu,
                    int(statistics.median(totals)) if totals else None,
                    len(own),
                    min(dtypes) if len(dtypes) == 1 else "",
                    _ordered(batches),
                    (statistics.median(amounts.values()), min(currencies))
                    if len(currencies) == 1
                    else None,
                )
            )
    return models, sorted({probe for probe, _ in values} - of_models, key=natural)


def _ordered(batches: Mapping[int, Mapping[str, list[float]]]) -> tuple[FleetBatch, ...]:
    """Return batches with a latency: what runs lack is that of sweeps."""
    found = []
    for batch, by_field in sorted(batches.items()):
        own = {**by_field}
        for field in _FIGURES:
            own[field] = by_field.get(field) or by_field.get(f"sweep {field}") or []
        figures = {name: statistics.median(values) for name, values in own.items() if values}
        if "latency_p50_ms" in figures:
            found.append(FleetBatch(batch, len(by_field.get("latency_p50_ms", ())), figures))
    present = max(found, key=lambda one: one.devices, default=None)
    return tuple(sorted(found, key=lambda one: (one is not present, one.batch)))
