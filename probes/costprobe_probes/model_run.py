"""One run of a model on a device: choose the batch, time passes, keep a steady-state window."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from costprobe_probes.batch import BatchPoint, BatchSearch, SearchLimits
from costprobe_probes.contention import Contention, CpuMeter, LaunchMeter
from costprobe_probes.device import TorchDevice, reserved_bytes
from costprobe_probes.host_memory import HostMemory
from costprobe_probes.model import LoadedModel, forward_pass, modes_of, work_of_pass
from costprobe_probes.naive import NaiveTimings
from costprobe_probes.pass_work import PassWork
from costprobe_probes.sources.model_source import Inputs
from costprobe_probes.stats import (
    ENERGY_WINDOW_MIN_S,
    LEAST_BATCHES,
    ProbeWindow,
    StopRule,
    WindowSettings,
    merged,
    outliers,
    quantile,
    summary,
)
from costprobe_probes.timing import (
    Load,
    Sampled,
    copy_to_device_ms,
    device_time_ms,
    run_load,
    sample,
    search_step_runs,
    warm_up,
)
from costprobe_probes.wire import ProbeConfigError, Wire, fingerprint, is_too_large

# Share of the deadline that a batch search may take: the rest is for the run.
SEARCH_SHARE = 0.25
# Copies of a batch on the host: the inputs, and pinned.
HOST_COPIES = 2
# Each step of a search continues the load of the step before.
SEARCH_WARM_UP_S = 0.0


class ModelProbeRun:
    """One request on a loaded model.

    Args:
        wire: Pipe to the daemon.
        request: The request, as parsed JSON.
        device: Device to run on.
        loaded: The model.
        started_s: Start of the request, CLOCK_MONOTONIC s.
    """

    def __init__(
        self,
        wire: Wire,
        request: dict[str, Any],
        device: TorchDevice,
        loaded: LoadedModel,
        started_s: float,
    ) -> None:
        self._wire = wire
        self._request = request
        self._device = device
        self._loaded = loaded
        self._workload = loaded.workload
        self._compiled = loaded.compiled
        tags = {"weights": "random"} if loaded.workload.weights == "random" else {}
        self._tags = {**modes_of(request), **tags}
        self._software = loaded.software(device, request)
        self._fingerprint = fingerprint(self._software)
        self._started_s = started_s
        # A batch search runs passes for so long; compilation extends the deadline.
        self._search_cap_s = SEARCH_SHARE * float(request["deadline_s"])
        self._searched_s = 0.0
        self._naive: NaiveTimings | None = None
        self._meter = CpuMeter() if device.torch_device.type == "cpu" else LaunchMeter()

    def run(self) -> None:
        """Choose the batch, time passes, run them back to back, report the result."""
        request = self._request
        batch = self._choose_batch()
        run, inputs = self._forward_pass(batch)
        flush = self._device.cache_flush() if request.get("cold") else None
        naive = NaiveTimings(self._device, flush) if request.get("naive") else None
        self._naive = naive
        if naive is not None:
            naive.time_first(run)
        latency_ms = warm_up(self._device, run, lambda done: self._progress("warmup", done, batch))
        started = self._meter.read()
        with self._meter.delays(latency_ms) as delays:
            sampled = sample(
                self._device,
                run,
                latency_ms=latency_ms,
                rule=StopRule(request["min_samples"], request["sample_cap_s"]),
                min_runs=request["min_samples"],
                on_progress=lambda done: self._progress("latency", done, batch),
                delays=delays,
                before=flush,
            )
        # Back-to-back passes leave no cold cache, and the energy of flushing cannot be separated
        # from that of a pass: a cold probe measures latency.
        load = self._load(run, batch, sampled) if flush is None else None
        contention = self._meter.since(started, torch.get_num_threads())
        device_ms = device_time_ms(self._device, run, latency_ms, flush)
        if naive is not None:
            self._progress("naive", 0.0, batch)
            naive.time_warm(run, inputs, latency_ms)
            # It may compile another batch.
            naive.time_batch_1(
                lambda items: self._forward_pass(items)[0], batch, self._workload.min_batch
            )
        h2d_ms = copy_to_device_ms(self._device, inputs.tensors())
        del run, inputs  # their memory is that of the pass that is counted
        self._progress("count", 0.0, batch)
        work = work_of_pass(self._device, self._workload, batch)
        self._report(batch, sampled, load, contention, work, h2d_ms=h2d_ms, device_ms=device_ms)

    def _forward_pass(self, batch: int) -> tuple[Callable[[], object], Inputs]:
        """Return a forward pass over inputs on the device, and the inputs on the host."""
        if self._compiled is not None:
            self._progress("compile", 0.0, batch)
        return forward_pass(self._device, self._loaded, batch, self._request)

    def _choose_batch(self) -> int:
        """Return the configured batch, the known batch of the same software, or the result of a search."""
        request, workload = self._request, self._workload
        most = workload.max_batch
        if request["batch"] != "auto":
            batch = int(request["batch"])
            if batch < workload.min_batch or (most is not None and batch > most):
                takes = (
                    f"{workload.min_batch} to {most}" if most else f"at least {workload.min_batch}"
                )
                raise ProbeConfigError(f"batch {batch}: the program was exported for {takes}")
            return batch
        if most is not None and most <= workload.min_batch:
            return most
        known: int | None = request.get("known_batch")
        if known is not None and request.get("known_fingerprint") == self._fingerprint:
            return known
        self._device.reset_peak()
        search = BatchSearch(
            self._measure_batch,
            self._device.headroom_bytes,
            lambda: self._searched_s >= self._search_cap_s,
            SearchLimits(
                base_bytes=self._device.peak_bytes(),
                max_batch=most,
                min_batch=workload.min_batch,
                latency_bound_s=request.get("latency_bound_s"),
                memory_cap_bytes=request.get("memory_cap_bytes"),
            ),
        )
        best, _ = search.run()
        self._device.reset_peak()
        return best

    def _measure_batch(self, batch: int) -> BatchPoint | None:
        self._progress("batch", self._search_share, batch)
        if batch > self._workload.min_batch and not self._fits_on_host(batch):
            return None
        self._device.reset_peak()
        try:
            point = self._time_batch(batch)
        except Exception as error:
            # Another process may have allocated memory since free memory was read.
            if batch == self._workload.min_batch or not is_too_large(error):
                raise
            return None
        self._wire.report("batch_point", **point._asdict())
        return point

    @property
    def _search_share(self) -> float:
        return min(self._searched_s / self._search_cap_s, 1.0)

    def _fits_on_host(self, batch: int) -> bool:
        """Return whether the inputs of a batch fit into the host's memory beside other processes."""
        least = self._workload.min_batch
        row: Inputs = self._workload.inputs(least)
        size = sum(x.numel() * x.element_size() for x in row.tensors()) * batch // least
        total, available = HostMemory().total_and_available_bytes()
        return HOST_COPIES * size <= available - reserved_bytes(total)

    def _time_batch(self, batch: int) -> BatchPoint:
        run, _ = self._forward_pass(batch)
        # From here on: a cold cache of compiled kernels must not end the search at a small batch.
        started_s = time.monotonic()
        share = self._search_share
        latency_ms = warm_up(
            self._device, run, lambda _: self._progress("batch", share, batch), SEARCH_WARM_UP_S
        )
        latencies_ms = self._device.time_block(run, search_step_runs(latency_ms))
        self._searched_s += time.monotonic() - started_s
        median_ms = quantile(sorted(latencies_ms), 0.5)
        return BatchPoint(batch, median_ms, batch / median_ms * 1000, self._device.peak_bytes())

    def _load(self, run: Callable[[], object], batch: int, sampled: Sampled) -> Load:
        request = self._request
        settings = None
        if request["energy"]:
            window_s = max(request["window_s"], ENERGY_WINDOW_MIN_S)
            settings = WindowSettings.of(self._wire, window_s, request["tail_s"])
        return run_load(
            self._device,
            run,
            latency_ms=quantile(sorted(sampled.latencies_ms), 0.5),
            settings=settings,
            on_progress=lambda done: self._progress("energy", done, batch),
        )

    def _progress(self, phase: str, done: float, batch: int) -> None:
        self._wire.progress(phase, done, f"batch {batch}")

    def _report(
        self,
        batch: int,
        sampled: Sampled,
        load: Load | None,
        contention: Contention,
        work: PassWork,
        *,
        h2d_ms: float | None,
        device_ms: float | None,
    ) -> None:
        on_cpu = self._device.torch_device.type == "cpu"
        has_window = load is not None and bool(self._request["energy"])
        timed, fastest_ms = len(sampled.latencies_ms), min(sampled.latencies_ms)
        if contention.contended:
            sampled = sampled.undelayed()
            # The loop has delayed passes as well, and is too short for a mean of them.
            pass_s = statistics.fmean(sampled.latencies_ms) / 1000
            load = None if load is None else load._replace(pass_s=pass_s, unsteady=False)
        delayed = timed - len(sampled.latencies_ms)
        parts_ms = merged(sampled.latencies_ms, LEAST_BATCHES)
        if load is not None:
            parts_ms.append(load.pass_s * 1000)
        if load is None:
            passes = len(sampled.latencies_ms)
            inference_s = sum(sampled.latencies_ms) / 1000
        else:
            passes, inference_s = load.passes, load.passes * load.pass_s
        if load is not None and has_window:
            window = load.window
        else:  # the conditions are those of all timed passes
            end_ns = sampled.end_ns if load is None else load.window.end_ns
            window = ProbeWindow(sampled.start_ns, sampled.start_ns, end_ns, end_ns)
        self._wire.report(
            "result",
            batch=batch,
            latency_ms=summary(sampled.latencies_ms),
            samples=len(sampled.latencies_ms),
            samples_delayed=delayed,
            # Where others may have delayed each part, an idle device needs less than in any of them.
            pass_low_ms=min(parts_ms) if delayed else fastest_ms,
            pass_high_ms=max(parts_ms),
            stop_reason=sampled.stop_reason,
            latency_rel_err=sampled.rel_err,
            outliers=outliers(sampled.latencies_ms),
            tags=self._tags,
            steady_start_ns=window.steady_start_ns,
            window_start_ns=window.start_ns,
            window_end_ns=window.end_ns,
            steady_end_ns=window.steady_end_ns,
            inferences=passes * batch,
            window_tokens_in=_tokens_of(passes * batch, self._workload.tokens_in),
            window_tokens_out=_tokens_of(passes * batch, self._workload.tokens_out),
            inference_s=inference_s,
            has_energy_window=has_window,
            h2d_ms=h2d_ms,
            device_ms=device_ms,
            unsteady=sampled.unsteady or (load is not None and load.unsteady),
            busy_s=time.monotonic() - self._started_s,
            fingerprint=self._fingerprint,
            software=self._software,
            threads=torch.get_num_threads() if on_cpu else None,
            contention=contention._asdict(),
            **work._asdict(),
            naive=self._naive.found if self._naive else [],
        )


def _tokens_of(items: int, tokens: int | None) -> int | None:
    return None if tokens is None else items * tokens
