"""Requests to a probe child: the probe's section of the configuration, and what one run adds."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from costprobe.adapters.probing.load_settings import length_document
from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.probe_request import ProbeRequest
from costprobe.adapters.probing.served_settings import (
    KserveProbeConfig,
    ServedProbeConfig,
    TensorConfig,
)
from costprobe.adapters.system.secret_file import read_secret
from costprobe.core.records import Device
from costprobe.domain.costing.load.point import LoadStep

# Of weights, inputs and the server's sampling.
SEED: Final = 0
# Longest time in s for which the load continues after the steady-state window.
TAIL_S: Final = 2.0
# Requests in the window of a point of a load curve: so many give a p90.
LOAD_SAMPLES: Final = 64


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
    gpu_uuid = None if device.is_host else device.uuid
    return ProbeRequest(probe.name, {**probe.model_dump(), **run}, gpu_uuid)


def start_request(probe: ProbeConfig, device: Device, *, list_files: bool) -> ProbeRequest:
    """Return the request for a start of a model in a new process.

    Args:
        probe: The probe.
        device: Its device.
        list_files: Whether the files that the start reads are reported, which delays it.
    """
    request = model_request(probe, device, {}, energy=False)
    run = {"cold_start": True, "list_files": list_files}
    return replace(request, document={**request.document, **run})


def served_request(
    probe: ServedProbeConfig, *, energy: bool, load: LoadStep | None = None
) -> ProbeRequest:
    """Return the request for a run against a server.

    Args:
        probe: The probe.
        energy: True for a run with an energy window.
        load: Point of a load curve that the run measures; None for a run of the probe.
    """
    token = _token_path(probe)
    if token is not None:
        # The child reads it; here the redactor learns it. The child reports why it cannot.
        with suppress(ValueError):
            read_secret(Path(token), "token")
    run: dict[str, Any] = {
        "energy": energy and probe.energy,
        "token_file": token,
        "tail_s": TAIL_S,
        "seed": SEED,
        "load": None if load is None else load_document(probe, load),
    }
    if isinstance(probe, KserveProbeConfig):
        run["inputs"] = [_tensor(tensor) for tensor in probe.inputs]
    return ProbeRequest(probe.name, {**probe.model_dump(), **run})


def load_document(probe: ServedProbeConfig, step: LoadStep) -> dict[str, Any]:
    """Return what the worker reads of a load curve and of one of its points."""
    config = probe.load_curve
    lengths = {"tokens_in": config.tokens_in, "tokens_out": config.tokens_out}
    bounds_ms: dict[str, float] = {}
    # An answer is good within the longest bound of each figure.
    for name, bound_ms in (probe.slo.bounds_ms if probe.slo else {}).items():
        figure = name.partition("_")[0]
        bounds_ms[figure] = max(bound_ms, bounds_ms.get(figure, 0.0))
    return {
        **config.model_dump(
            include={"warmup_s", "window_s", "window_max_s", "ignore_eos", "prompts"}
        ),
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


def batch_name(probe: ProbeConfig, device: Device) -> str:
    """Return the name under which a batch search's result is stored.

    It is valid for one device, model and latency bound; the worker checks the software.
    """
    bound = "" if probe.latency_bound_s is None else f" within {probe.latency_bound_s:g} s"
    return f"batch {device.uuid} {probe.name} {probe.identity} {probe.measured_dtype}{bound}"


def _tensor(tensor: TensorConfig) -> dict[str, Any]:
    data = tensor.data or (tensor.fill,) * math.prod(tensor.shape)
    described = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    return {**described, "data": list(data)}


def _token_path(probe: ServedProbeConfig) -> str | None:
    """Return the file of the server's token; systemd stores credentials in a folder."""
    if probe.token_credential is not None:
        folder = os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials/costprobe.service")
        return str(Path(folder) / probe.token_credential)
    return None if probe.token_file is None else str(probe.token_file)
