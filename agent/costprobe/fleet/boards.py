"""The models of probes on the GPU models of a fleet, by batch: one for all devices with the same GPU.

A probe without rows of `software` is of a server, whose requests are no passes. The rows have no latency bound
of a probe, and of a server neither its model nor its service level.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from costprobe.adapters.databases.question import Question
from costprobe.core.records import Device, natural
from costprobe.fleet.answers import FleetAnswers
from costprobe.savings.history import BatchFigures, ProbeHistory
from costprobe.savings.where import PRECISIONS, MeasuredBatch, MeasuredModel

_PLACE: Final = ("host", "device", "probe")
_PLACED_BATCH: Final = (*_PLACE, "batch")
# Runs without a variant, and points of sweeps over batches.
_PLAIN: Final = dict.fromkeys(("cold", "compile", "cuda_graph", "weights", "concurrency"), "")
_SWEPT: Final = {"loop": ""}
_FIGURES: Final = ("latency_p50_ms", "throughput_per_s", "energy_per_inference_j")
_COUNTED: Final = ("flop_per_pass", "mfu_pct", "bytes_per_pass")
_USED: Final = "mem_used_pct"
_PEAK: Final = "peak_memory_bytes"


def fleet_models(answers: FleetAnswers) -> tuple[list[tuple[MeasuredModel, int]], list[str]]:
    """Return the models of probes on each GPU model with the number of its devices, and probes of servers.

    A figure is the median over devices of each one's median, of memory of its largest value. The present batch
    is the one that most devices run. A cost in several currencies is unknown.

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
        own = {(*place, probe) for place in users[probe, gpu]}
        totals = [value for (*_, model), value in memory.items() if model == gpu]
        total = statistics.median(totals) if totals else None
        known = sorted(_batches(batches, total), key=lambda one: -one[0].figures.runs)
        if probe not in of_models or not known:
            continue
        amounts = {key: cost for key, cost in costs.items() if key[:3] in own}
        currencies = {key[3] for key in amounts}
        dtypes = {key[3] for key in typed if key[:3] in own}
        present, *others = (one for one, _ in known)
        model = MeasuredModel(
            ProbeHistory(
                probe,
                f"{len(own)} x {gpu}",
                "",
                None,
                present.figures,
                tuple(one.figures for one in others),
            ),
            Device("", "gpu", "", gpu, memory_bytes=None if total is None else int(total)),
            (present, *others),
            PRECISIONS.get(min(dtypes), "fp16") if len(dtypes) == 1 else "fp16",
            known[0][1],
            (statistics.median(amounts.values()), min(currencies))
            if len(currencies) == 1
            else None,
        )
        models.append((model, len(own)))
    return models, sorted({probe for probe, _ in values} - of_models, key=natural)


def _batches(
    batches: Mapping[int, Mapping[str, list[float]]], memory_bytes: float | None
) -> Iterator[tuple[MeasuredBatch, float | None]]:
    """Yield each batch with a latency, and the peak rate of its utilization; what runs lack is that of sweeps."""
    for batch, by_field in sorted(batches.items()):
        values = {name: statistics.median(of_devices) for name, of_devices in by_field.items()}
        found = {
            field: values[f"sweep {field}"] for field in _FIGURES if f"sweep {field}" in values
        }
        found |= values
        latency_ms = found.get("latency_p50_ms")
        if latency_ms is not None:
            runs = len(by_field.get("latency_p50_ms", ()))
            per_s = found.get("throughput_per_s", batch / latency_ms * 1000)
            joules = found.get("energy_per_inference_j")
            source: Literal["runs", "sweep"] = "runs" if runs else "sweep"
            figures = BatchFigures(batch, source, runs, latency_ms, per_s, joules)
            peak, used_pct = found.get(_PEAK), found.get(_USED)
            used = memory_bytes * used_pct / 100 if memory_bytes and used_pct else None
            flop, pct = found.get("flop_per_pass"), found.get("mfu_pct")
            yield (
                MeasuredBatch(figures, peak or found.get("bytes_per_pass"), peak or used),
                flop * per_s / batch / (pct / 100) if flop and pct else None,
            )
