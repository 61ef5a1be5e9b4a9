"""A worker's session with torch: one device, and the model it last ran."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from probes import batch as batches
from probes.device import Device, open_device
from probes.digest import fingerprint
from probes.errors import ConfigError, kind_of, words_on
from probes.fingerprint import model_facts, software
from probes.region import Edges, Region, steady_region
from probes.replay import captured
from probes.spec import Spec
from probes.stats import StopRule, outliers, quantile, summary
from probes.timing import Sampled, block_runs, copy_to_device_ms, sample, warm_up
from probes.wire import Wire
from probes.workload import Inputs, Workload, load

ENERGY_REGION_MIN_S = 5.0
SEARCH_STEP_MS = 300.0
SEARCH_STEP_MAX_RUNS = 1000
SEARCH_CAP_S = 30.0
# Switches of a request that change how a pass runs.
WAYS = ("cold", "compile", "cuda_graph")


class Loaded(NamedTuple):
    """A model on the device, and what identifies it."""

    workload: Workload
    facts: dict[str, str]


class Session:
    """Runs requests on one device; keeps the model between requests for the same one.

    Args:
        wire: Where to report.
        torch_device: Torch's name of the device.

    Raises:
        ConfigError: This torch is too old.
        DeviceError: The device cannot be used.
    """

    def __init__(self, wire: Wire, torch_device: str) -> None:
        if int(torch.__version__.partition(".")[0]) < 2:  # noqa: PLR2004 - the first with attention
            raise ConfigError(f"torch {torch.__version__} is too old: install 2.0 or newer")
        self._wire = wire
        self._device = open_device(torch_device)
        self._loaded: Loaded | None = None
        self._loaded_as: tuple[object, ...] = ()
        wire.report("hello", pid=os.getpid(), software=software(self._device.torch_device))

    def run(self, request: dict[str, Any]) -> None:
        """Runs one request and reports its result.

        Raises:
            ConfigError: The request asks for what is not there.
            Exception: Whatever torch or the operator's module raises.
        """
        started_s = time.monotonic()
        if request.get("threads"):
            torch.set_num_threads(request["threads"])
        self._wire.progress("load", 0.0)
        loaded = self._model(request)
        with torch.inference_mode(), self._device.in_background():
            Probe(self._wire, request, self._device, loaded, started_s).run()

    def _model(self, request: dict[str, Any]) -> Loaded:
        spec = Spec.of(request)
        wanted = (json.dumps(spec), request["seed"], bool(request.get("compile")))
        if self._loaded is None or self._loaded_as != wanted:
            self._loaded = None  # the old one goes before the new one comes
            workload = load(spec, request["seed"])
            facts = model_facts(workload, name=spec.name, dtype=spec.dtype)
            workload = workload.on(self._device.torch_device)
            if request.get("compile"):
                compiled: Any = torch.compile(workload.module)
                workload = workload._replace(module=compiled)
            self._loaded, self._loaded_as = Loaded(workload, facts), wanted
        return self._loaded


class Probe:
    """One request's work on a loaded model.

    Args:
        wire: Where to report.
        request: What to run.
        device: Where to run it.
        loaded: The model.
        started_s: When work on the request began, CLOCK_MONOTONIC s.
    """

    def __init__(
        self,
        wire: Wire,
        request: dict[str, Any],
        device: Device,
        loaded: Loaded,
        started_s: float,
    ) -> None:
        self._wire = wire
        self._request = request
        self._device = device
        self._workload = loaded.workload
        # How a pass is run, as tags: only what differs from the plain way.
        self._ways = {name: "true" for name in WAYS if request.get(name)}
        tags = {"weights": "random"} if loaded.workload.weights == "random" else {}
        self._tags = {**self._ways, **tags}
        self._software = {**software(device.torch_device), **loaded.facts, **self._ways}
        self._mark = fingerprint(self._software)
        self._started_s = started_s

    def run(self) -> None:
        """Finds the batch, times, keeps the region, reports the result."""
        request = self._request
        batch = self._batch()
        run, inputs = self._forward_pass(batch)
        flush = self._device.cache_flush() if request.get("cold") else None
        latency_ms = warm_up(self._device, run, lambda done: self._progress("warmup", done, batch))
        sampled = sample(
            self._device,
            run,
            latency_ms=latency_ms,
            rule=StopRule(request["min_runs"], request["sample_cap_s"]),
            min_runs=request["min_runs"],
            on_progress=lambda done: self._progress("latency", done, batch),
            before=flush,
        )
        # What flushing draws cannot be told from what a pass draws: a cold probe is one of latency.
        has_region = request["energy"] and flush is None
        region = self._region(run, batch, sampled) if has_region else None
        h2d_ms = copy_to_device_ms(self._device, inputs.tensors())
        self._report(batch, sampled, region, h2d_ms)

    def _forward_pass(self, batch: int) -> tuple[Callable[[], object], Inputs]:
        """A forward pass over inputs that lie on the device, and the inputs on the host."""
        inputs = self._workload.inputs(batch)
        staged = inputs.each(lambda x: x.to(self._device.torch_device))
        run = self._workload.forward_pass(staged)
        if self._request.get("compile"):
            self._compile(run)
        if self._request.get("cuda_graph"):
            run = captured(self._device, run)
        return run, inputs

    @staticmethod
    def _compile(run: Callable[[], object]) -> None:
        """Runs a pass for its compilation.

        Raises:
            ConfigError: It cannot be compiled here.
        """
        try:
            run()
        except Exception as error:
            if kind_of(error) in {"oom", "device"}:
                raise
            raise ConfigError(
                f"torch.compile failed ({words_on(error, None)}); remove compile from this probe, or"
                " give its interpreter a C++ compiler and, on a GPU, triton"
            ) from error

    def _batch(self) -> int:
        """The batch as asked, as remembered for the same software, or as searched."""
        request, workload = self._request, self._workload
        most = workload.max_batch
        if request["batch"] != "auto":
            batch = int(request["batch"])
            if batch < workload.min_batch or (most is not None and batch > most):
                takes = (
                    f"{workload.min_batch} to {most}" if most else f"at least {workload.min_batch}"
                )
                raise ConfigError(f"batch {batch}: the program was exported for {takes}")
            return batch
        if most is not None and most <= workload.min_batch:
            return most
        known: int | None = request.get("known_batch")
        if known is not None and request.get("known_fingerprint") == self._mark:
            return known
        self._device.reset_peak()
        started_s = time.monotonic()
        search = batches.Search(
            self._measured_batch,
            self._device.headroom_bytes,
            lambda: time.monotonic() - started_s >= SEARCH_CAP_S,
            batches.Limits(
                base_bytes=self._device.peak_bytes(),
                max_batch=min(request["max_batch"], most or request["max_batch"]),
                min_batch=workload.min_batch,
                latency_bound_ms=request.get("latency_bound_ms"),
                memory_cap_bytes=request.get("memory_cap_bytes"),
            ),
        )
        best, _ = search.run()
        self._device.reset_peak()
        return best

    def _measured_batch(self, batch: int) -> batches.BatchPoint | None:
        self._progress("batch", min(batch / self._request["max_batch"], 1.0), batch)
        self._device.reset_peak()
        try:
            point = self._timed_batch(batch)
        except (MemoryError, RuntimeError) as error:
            # A neighbour may have grown between the look at what is free and the step.
            if batch == self._workload.min_batch or kind_of(error) != "oom":
                raise
            return None
        self._wire.report(
            "batch_point",
            batch=point.batch,
            latency_ms=point.latency_ms,
            throughput_per_s=point.throughput_per_s,
            peak_memory_bytes=point.peak_bytes,
        )
        return point

    def _timed_batch(self, batch: int) -> batches.BatchPoint:
        share = min(batch / self._request["max_batch"], 1.0)
        run, _ = self._forward_pass(batch)
        latency_ms = warm_up(self._device, run, lambda _: self._progress("batch", share, batch))
        runs = max(block_runs(latency_ms), int(SEARCH_STEP_MS / max(latency_ms, 1e-3)))
        latencies_ms, _ = self._device.time_block(run, min(runs, SEARCH_STEP_MAX_RUNS))
        median_ms = quantile(sorted(latencies_ms), 0.5)
        return batches.BatchPoint(
            batch, median_ms, batch / median_ms * 1000, self._device.peak_bytes()
        )

    def _region(self, run: Callable[[], object], batch: int, sampled: Sampled) -> Region:
        request = self._request
        return steady_region(
            self._device,
            run,
            latency_ms=quantile(sorted(sampled.latencies_ms), 0.5),
            edges=Edges(
                region_s=max(request["region_s"], ENERGY_REGION_MIN_S),
                tail_s=request["tail_s"],
                marked=self._wire.marked,
                on_edge=lambda edge, t_ns: self._wire.report(edge, t_ns=t_ns),
            ),
            on_progress=lambda done: self._progress("energy", done, batch),
        )

    def _progress(self, phase: str, done: float, batch: int) -> None:
        self._wire.progress(phase, done, f"batch {batch}")

    def _report(
        self, batch: int, sampled: Sampled, region: Region | None, h2d_ms: float | None
    ) -> None:
        on_cpu = self._device.torch_device.type == "cpu"
        is_cold = bool(self._request.get("cold"))
        device_ms = sum(sampled.latencies_ms)
        inference_s = None
        if region is None:
            start_ns, end_ns = sampled.start_ns, sampled.end_ns
            region = Region(start_ns, start_ns, end_ns, end_ns, len(sampled.latencies_ms))
            # Between the passes the cache was flushed: that is no part of an inference.
            inference_s = device_ms / 1000 if is_cold else None
        has_wall = not on_cpu and not is_cold
        self._wire.report(
            "result",
            probe=self._request["probe"],
            batch=batch,
            latency_ms=summary(sampled.latencies_ms),
            samples=len(sampled.latencies_ms),
            stop_reason=sampled.stop_reason,
            latency_rel_err=sampled.rel_err,
            outliers=outliers(sampled.latencies_ms),
            wall_ms=sampled.wall_ms / len(sampled.latencies_ms) if has_wall else None,
            tags=self._tags,
            steady_start_ns=region.steady_start_ns,
            region_start_ns=region.start_ns,
            region_end_ns=region.end_ns,
            steady_end_ns=region.steady_end_ns,
            inferences=region.runs * batch,
            inference_s=inference_s,
            has_energy_window=bool(self._request["energy"]) and not is_cold,
            h2d_ms=h2d_ms,
            launch_overhead_pct=(sampled.wall_ms / device_ms - 1) * 100 if has_wall else None,
            busy_s=time.monotonic() - self._started_s,
            fingerprint=self._mark,
            software=self._software,
            threads=torch.get_num_threads() if on_cpu else None,
        )
