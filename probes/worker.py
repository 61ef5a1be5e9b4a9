"""`python -m probes.worker`: runs probes as asked on standard input, reports on its output."""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

import torch

from probes import batch as batches
from probes.device import Device, Runnable, open_device
from probes.fingerprint import fingerprint, model_facts, software
from probes.models import ConfigError, Model, build
from probes.region import Edges, Region, steady_region
from probes.stats import StopRule, quantile, summary
from probes.timing import Sampled, block_runs, copy_to_device_ms, sample, warm_up
from probes.wire import Wire

ENERGY_REGION_MIN_S = 5.0
SEARCH_STEP_S = 0.3
OOM_SCORE_ADJ = "500"


class Probe:
    """One request's work.

    Args:
        wire: Where to report.
        request: What to run.
        device: Where to run it.
    """

    def __init__(self, wire: Wire, request: dict[str, Any], device: Device) -> None:
        self._wire = wire
        self._request = request
        self._device = device
        self._started_s = time.monotonic()

    @torch.inference_mode()
    def run(self) -> None:
        """Loads the model, finds the batch, times, keeps the region, reports the result."""
        request = self._request
        self._wire.progress("load", 0.0)
        model = self._model(1)
        found = software(self._device.torch_device)
        found.update(
            model_facts(
                model.module,
                kind=request["kind"],
                path=request.get("module"),
                dtype=request["dtype"],
            )
        )
        mark = fingerprint(found)
        batch = self._batch(mark)
        run, inputs = self._runnable(batch)
        latency_ms = warm_up(self._device, run, lambda done: self._progress("warmup", done, batch))
        sampled = sample(
            self._device,
            run,
            latency_ms=latency_ms,
            rule=StopRule(request["min_runs"], request["sample_cap_s"]),
            min_runs=request["min_runs"],
            on_progress=lambda done: self._progress("latency", done, batch),
        )
        region = self._region(run, batch, sampled) if request["energy"] else None
        h2d_ms = copy_to_device_ms(self._device, inputs)
        self._report(batch, sampled, region, h2d_ms, mark, found)

    def _model(self, batch: int) -> Model:
        request = self._request
        return build(
            request["kind"], request.get("module"), request["dtype"], batch, request["seed"]
        )

    def _runnable(self, batch: int) -> tuple[Runnable, list[torch.Tensor]]:
        """A forward pass over inputs that lie on the device, and the inputs on the host."""
        model = self._model(batch)
        where = self._device.torch_device
        module = model.module.to(where)
        inputs = [x.to(where) for x in model.inputs]

        def run() -> object:
            return module(*inputs)

        return run, list(model.inputs)

    def _batch(self, mark: str) -> int:
        """The batch as asked, as remembered for the same software, or as searched."""
        request = self._request
        if request["batch"] != "auto":
            return int(request["batch"])
        known: int | None = request.get("known_batch")
        if known is not None and request.get("known_fingerprint") == mark:
            return known
        self._device.reset_peak()
        loaded, _ = self._runnable(1)
        base_bytes = self._device.peak_bytes()
        del loaded
        best, curve = batches.search(
            self._measured_batch,
            self._device.headroom_bytes,
            base_bytes=base_bytes,
            max_batch=request["max_batch"],
            latency_bound_ms=request.get("latency_bound_ms"),
            memory_cap_bytes=request.get("memory_cap_bytes"),
        )
        for point in curve:
            self._wire.report(
                "batch_point",
                batch=point.batch,
                latency_ms=point.latency_ms,
                throughput_per_s=point.throughput_per_s,
                peak_memory_bytes=point.peak_bytes,
            )
        return best

    def _measured_batch(self, batch: int) -> batches.BatchPoint:
        self._progress("batch", min(batch / self._request["max_batch"], 1.0), batch)
        self._device.reset_peak()
        run, _ = self._runnable(batch)
        latency_ms = warm_up(self._device, run, lambda done: self._progress("batch", done, batch))
        runs = max(block_runs(latency_ms), int(SEARCH_STEP_S * 1000 / max(latency_ms, 1e-3)))
        latencies_ms, _ = self._device.time_block(run, min(runs, 1000))
        median_ms = quantile(sorted(latencies_ms), 0.5)
        return batches.BatchPoint(
            batch, median_ms, batch / median_ms * 1000, self._device.peak_bytes()
        )

    def _region(self, run: Runnable, batch: int, sampled: Sampled) -> Region:
        request = self._request
        return steady_region(
            self._device,
            run,
            latency_ms=statistics.median(sampled.latencies_ms),
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
        self,
        batch: int,
        sampled: Sampled,
        region: Region | None,
        h2d_ms: float | None,
        mark: str,
        found: dict[str, str],
    ) -> None:
        on_cpu = self._device.torch_device.type == "cpu"
        if region is None:
            runs = len(sampled.latencies_ms)
            region = Region(
                sampled.start_ns, sampled.start_ns, sampled.end_ns, sampled.end_ns, runs
            )
        device_ms = sum(sampled.latencies_ms)
        self._wire.report(
            "result",
            probe=self._request["probe"],
            batch=batch,
            latency_ms=summary(sampled.latencies_ms),
            samples=len(sampled.latencies_ms),
            stop_reason=sampled.stop_reason,
            steady_start_ns=region.steady_start_ns,
            region_start_ns=region.start_ns,
            region_end_ns=region.end_ns,
            steady_end_ns=region.steady_end_ns,
            inferences=region.runs * batch,
            has_energy_window=bool(self._request["energy"]),
            h2d_ms=h2d_ms,
            launch_overhead_pct=None if on_cpu else (sampled.wall_ms / device_ms - 1) * 100,
            busy_s=time.monotonic() - self._started_s,
            fingerprint=mark,
            software=found,
            threads=torch.get_num_threads() if on_cpu else None,
        )


def serve(wire: Wire) -> None:
    """Answers requests until standard input ends."""
    device: Device | None = None
    while True:
        request = wire.request()
        try:
            if request.get("threads"):
                torch.set_num_threads(request["threads"])
            if device is None:
                device = open_device(request["torch_device"])
                wire.report("hello", pid=os.getpid(), software=software(device.torch_device))
            Probe(wire, request, device).run()
        except ConfigError as error:
            wire.report("error", kind="config", message=str(error))
        except (MemoryError, torch.cuda.OutOfMemoryError) as error:
            wire.report("error", kind="oom", message=_out_of_memory(request, error))
        except Exception as error:  # noqa: BLE001 - whatever an operator's module raises is reported
            kind = _kind_of(error, device)
            words = _out_of_memory(request, error) if kind == "oom" else _one_line(error)
            wire.report("error", kind=kind, message=words)


def _kind_of(error: Exception, device: Device | None) -> str:
    if "out of memory" in str(error).lower() or "can't allocate memory" in str(error).lower():
        return "oom"
    if device is None or "CUDA error" in str(error):
        return "device"
    return "crash"


def _out_of_memory(request: dict[str, Any], error: BaseException) -> str:
    return (
        f"out of memory at batch {request['batch']}: set memory_cap or a smaller batch"
        f" ({_one_line(error)})"
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}"


def main() -> None:
    """Serves, as the first to go where the host runs out of memory."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - one write
            file.write(OOM_SCORE_ADJ)
    except OSError as error:
        sys.stderr.write(f"oom_score_adj: {error}\n")
    serve(Wire())


if __name__ == "__main__":
    main()
