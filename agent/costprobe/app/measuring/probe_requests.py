"""Requests to probe children, from the probes' configuration sections."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.request import ProbeRequest, ServedRequest
from costprobe.adapters.probing.served_settings import (
    OpenAiProbeConfig,
    ServedProbeConfig,
    TensorConfig,
)
from costprobe.core.records import Device


def model_request(
    probe: ProbeConfig, device: Device, remembered: Mapping[str, Any], *, energy: bool
) -> ProbeRequest:
    """Return the request for a run of a model.

    Args:
        probe: The probe.
        device: Its device.
        remembered: Stored result of an earlier batch search; empty if there is none.
        energy: True for a run with an energy window.
    """
    bound_s = probe.latency_bound_s
    return ProbeRequest(
        probe=probe.name,
        kind=probe.source,
        module=probe.module,
        model=probe.model,
        weights=None if probe.weights is None else str(probe.weights),
        inputs=tuple(given.model_dump(exclude_none=True) for given in probe.inputs),
        torch_device="cpu" if device.is_host else "cuda:0",
        gpu_uuid=None if device.is_host else device.uuid,
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
        window_s=probe.window_s,
        cold=probe.cold,
        compile=probe.compile,
        cuda_graph=probe.cuda_graph,
    )


def served_request(probe: ServedProbeConfig, *, energy: bool) -> ServedRequest:
    """Return the request for a run against a server.

    Args:
        probe: The probe.
        energy: True for a run with an energy window.
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
        "window_s": probe.window_s,
        "sample_cap_s": probe.sample_cap_s,
        "token_path": _token_path(probe),
        "ca_file": None if probe.ca_file is None else str(probe.ca_file),
    }
    if isinstance(probe, OpenAiProbeConfig):
        protocol_fields: dict[str, Any] = {
            "api": probe.api,
            "prompt": probe.prompt,
            "vary_prompt": probe.vary_prompt,
            "max_tokens": probe.max_tokens,
        }
    else:
        protocol_fields = {
            "version": probe.version,
            "inputs": tuple(_tensor(tensor) for tensor in probe.inputs),
        }
    return ServedRequest(**common, **protocol_fields)


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
    """Return the file of the server's token; systemd credentials lie in a folder of the service."""
    if probe.token_credential is not None:
        folder = os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials/costprobe.service")
        return str(Path(folder) / probe.token_credential)
    return None if probe.token_file is None else str(probe.token_file)
