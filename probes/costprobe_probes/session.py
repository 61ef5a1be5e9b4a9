"""Probes that run a model with torch, on one device; the last model stays loaded."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from costprobe_probes.device import open_device
from costprobe_probes.model import (
    AUTOGRAD,
    CompiledModule,
    LoadedModel,
    autograd_of,
    check_memory,
    forward_pass,
    load,
    model_facts,
    software,
)
from costprobe_probes.model_run import ModelProbeRun
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.wire import ProbeConfigError, Spec, Wire, fingerprint


class Session:
    """Run requests on one device; keep the model between requests for the same one.

    Args:
        wire: Pipe to the daemon.
        torch_device: Name of the device in torch.

    Raises:
        ProbeConfigError: torch is too old.
        DeviceError: The device cannot be used.
    """

    def __init__(self, wire: Wire, torch_device: str) -> None:
        if int(torch.__version__.partition(".")[0]) < 2:  # noqa: PLR2004 - the first with attention
            raise ProbeConfigError(f"torch {torch.__version__} is too old: install 2.0 or newer")
        self._wire = wire
        self._device = open_device(torch_device)
        self._loaded: LoadedModel | None = None
        self._loaded_as: tuple[object, ...] = ()
        self._processors = sorted(os.sched_getaffinity(0))
        self._default_threads = torch.get_num_threads()
        wire.report("handshake", pid=os.getpid(), software=software(self._device.torch_device))

    def run(self, request: dict[str, Any]) -> None:
        """Run one request and report its result.

        Raises:
            ProbeConfigError: The request is invalid.
            Exception: Any error of torch or the operator's module.
        """
        started_s = time.monotonic()
        self._use_threads(request.get("threads"))
        self._wire.progress("load", 0.0)
        loaded = self._model(request)
        with AUTOGRAD[autograd_of(request)](), self._device.in_background():
            ModelProbeRun(self._wire, request, self._device, loaded, started_s).run()

    def start(self, request: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Load the model of a request for the first time in this process, and run one pass.

        Returns:
            When the weights were on the device, and when the pass was complete, in CLOCK_MONOTONIC ns,
            with the fingerprint of the probe's runs; and the files of the model.

        Raises:
            ProbeConfigError: The request is invalid.
            Exception: Any error of torch or the operator's module.
        """
        self._use_threads(request.get("threads"))
        spec = Spec.of(request)
        self._wire.progress("load", 0.0)
        workload = self._on_device(spec, request)
        self._device.synchronize()
        loaded_ns = time.monotonic_ns()
        self._wire.progress("compile" if request.get("compile") else "answer", 0.0)
        compiled = CompiledModule(workload.module) if request.get("compile") else None
        loaded = LoadedModel(workload, {}, compiled)
        batch = workload.min_batch if request["batch"] == "auto" else request["batch"]
        with AUTOGRAD[autograd_of(request)]():
            run, _ = forward_pass(self._device, loaded, batch, request)
            run()
            self._device.synchronize()
        answered_ns = time.monotonic_ns()
        # After the measurement: it reads all weights.
        facts = model_facts(workload, name=spec.name, dtype=spec.dtype)
        names = loaded._replace(facts=facts).software(self._device, request)
        instants = {"loaded_ns": loaded_ns, "answered_ns": answered_ns}
        return {**instants, "fingerprint": fingerprint(names)}, workload.files

    def _use_threads(self, threads: int | None) -> None:
        """Compute on so many threads, each on a processor of their own; by default as torch chooses.

        A thread that moves to another processor loses its caches, and one beside another thread of
        the probe half of its speed.
        """
        torch.set_num_threads(threads or self._default_threads)
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.sched_setaffinity(int(thread.name), self._processors[:threads])

    def _on_device(self, spec: Spec, request: dict[str, Any]) -> SourcedModel:
        """Load the model of a request, and move it to the device if it fits.

        Raises:
            ProbeConfigError: The request is invalid, or the model does not fit.
        """
        workload = load(spec, request["seed"])
        batch = workload.min_batch if request["batch"] == "auto" else int(request["batch"])
        cap_bytes = request.get("memory_cap_bytes")
        check_memory(workload, self._device, spec.name, batch, cap_bytes)
        return workload.on(self._device.torch_device)

    def _model(self, request: dict[str, Any]) -> LoadedModel:
        spec = Spec.of(request)
        key = (json.dumps(spec), request["seed"], bool(request.get("compile")))
        if self._loaded is None or self._loaded_as != key:
            self._loaded = None  # release the old model before loading the new one
            workload = self._on_device(spec, request)
            facts = model_facts(workload, name=spec.name, dtype=spec.dtype)
            compiled = CompiledModule(workload.module) if request.get("compile") else None
            self._loaded, self._loaded_as = LoadedModel(workload, facts, compiled), key
        return self._loaded
