"""What a probe child is asked, from what the operator configured."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.config_probe import OpenAiProbeConfig, ProbeConfig, ServedProbeConfig, TensorConfig
from agent.model import Device
from agent.probing.request import ProbeRequest, ServedRequest


def model_request(
    probe: ProbeConfig, device: Device, remembered: Mapping[str, Any], *, energy: bool
) -> ProbeRequest:
    """A run of a model.

    Args:
        probe: What to run.
        device: Where.
        remembered: What an earlier search of the batch found.
        energy: True if the run shall carry an energy window.
    """
    bound_s = probe.latency_bound_s
    return ProbeRequest(
        probe=probe.name,
        kind=probe.source,
        module=probe.module,
        model=probe.model,
        weights=None if probe.weights is None else str(probe.weights),
        inputs=tuple(given.model_dump(exclude_none=True) for given in probe.inputs),
        torch_device="cpu" if device.kind == "cpu" else "cuda:0",
        gpu_uuid=None if device.kind == "cpu" else device.uuid,
        dtype=probe.measured_dtype,
        batch=probe.batch,
        known_batch=remembered.get("batch"),
        known_fingerprint=remembered.get("fingerprint"),
        max_batch=probe.max_batch,
        latency_bound_ms=None if bound_s is None else bound_s * 1000,
        memory_cap_bytes=probe.memory_cap_bytes,
        threads=probe.threads,
        min_runs=probe.min_samples,
        sample_cap_s=probe.sample_cap_s,
        energy=energy and probe.carries_energy,
        region_s=probe.region_s,
        cold=probe.cold,
        compile=probe.compile,
        cuda_graph=probe.cuda_graph,
    )


def served_request(probe: ServedProbeConfig, *, energy: bool) -> ServedRequest:
    """A run of requests to a server.

    Args:
        probe: What to ask.
        energy: True if the run shall carry an energy window.
    """
    common: dict[str, Any] = {
        "probe": probe.name,
        "kind": probe.kind,
        "url": probe.url,
        "model": probe.model,
        "requests": probe.requests,
        "warmup_requests": probe.warmup_requests,
        "concurrency": probe.concurrency,
        "timeout_s": probe.timeout_s,
        "energy": energy and probe.energy,
        "region_s": probe.region_s,
        "sample_cap_s": probe.sample_cap_s,
        "token_path": _token_path(probe),
        "ca_file": None if probe.ca_file is None else str(probe.ca_file),
    }
    if isinstance(probe, OpenAiProbeConfig):
        asked: dict[str, Any] = {
            "api": probe.api,
            "prompt": probe.prompt,
            "max_tokens": probe.max_tokens,
        }
    else:
        asked = {
            "version": probe.version,
            "inputs": tuple(_tensor(tensor) for tensor in probe.inputs),
        }
    return ServedRequest(**common, **asked)


def batch_name(probe: ProbeConfig, device: Device) -> str:
    """A search's result holds for one device, model and bound; the worker checks the software."""
    bound = "" if probe.latency_bound_s is None else f" within {probe.latency_bound_s:g} s"
    return f"batch {device.uuid} {probe.name} {probe.identity} {probe.measured_dtype}{bound}"


def _tensor(tensor: TensorConfig) -> dict[str, Any]:
    data = tensor.data or (tensor.fill,) * math.prod(tensor.shape)
    described = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    return {**described, "data": list(data)}


def _token_path(probe: ServedProbeConfig) -> str | None:
    """The file of the server's token; a systemd credential is one in a folder of the service's."""
    if probe.token_credential is not None:
        folder = os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials/infercost.service")
        return str(Path(folder) / probe.token_credential)
    return None if probe.token_file is None else str(probe.token_file)
