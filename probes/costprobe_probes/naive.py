"""What common mistakes of timing report about the model that a probe measures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from costprobe_probes.device import Runnable, TorchDevice, host_times_ms
from costprobe_probes.sources.model_source import Inputs
from costprobe_probes.stats import quantile
from costprobe_probes.timing import garbage_collection_paused, search_step_runs, warm_up

# Passes of a loop without warm-up; fewer of slow passes.
LOOP_PASSES = 10
LOOP_MS = 5000.0
# A median of fewer would be the mistake "one sample".
MEDIAN_PASSES_MIN = 3
ON_CPU = "not applicable on the CPU"


class NaiveTimings:
    """Measure a model with one mistake at a time; all else is as in the probe's own measurement.

    Args:
        device: Device to run on.
        before: Called before each pass, outside the timed interval, as for the probe's own passes.
        clock: The host's clock in ns, for the mistakes that use it.

    Attributes:
        found: What was measured, in the order of the calls: the name of the `mistake`, `latency_ms` of a
            batch that it reports, None if it cannot be made here, the number of timed passes as
            `samples`, and why it is `not_applicable`, empty if it is.
    """

    def __init__(
        self,
        device: TorchDevice,
        before: Runnable | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._device = device
        self._before = before
        self._clock = clock
        self.found: list[dict[str, Any]] = []

    def time_first(self, run: Runnable) -> None:
        """Time the first passes of a process, before any warm-up."""
        (first_ms,) = self._block(run, 1)
        self._note("first_pass", first_ms, 1)
        more = min(LOOP_PASSES - 1, max(1, int(LOOP_MS / max(first_ms, 1e-3))))
        latencies_ms = [first_ms, *self._block(run, more)]
        self._note("no_warm_up", statistics.fmean(latencies_ms), len(latencies_ms))

    def time_warm(self, run: Runnable, inputs: Inputs, latency_ms: float) -> None:
        """Time a model after its warm-up.

        Args:
            run: One forward pass over inputs on the device.
            inputs: The same inputs on the host.
            latency_ms: Approximate latency of a pass; determines how many are timed.
        """
        runs = _passes(latency_ms)
        target = self._device.torch_device

        def copy_and_run() -> object:
            return [x.to(target, copy=True) for x in inputs.tensors()], run()

        def run_and_wait() -> None:
            run()
            self._device.synchronize()

        self._add("one_sample", self._block(run, 1))
        self._add("transfer_inside", self._block(copy_and_run, runs))
        if target.type == "cpu":
            self._note("no_synchronize", None, 0, f"{ON_CPU}: a pass is complete when it returns")
            self._note("host_clock", None, 0, f"{ON_CPU}: the host's clock is its own")
            return
        self._add("no_synchronize", self._on_host(run, runs))
        self._add("host_clock", self._on_host(run_and_wait, runs))

    def time_batch_1(self, run_of: Callable[[int], Runnable], batch: int, min_batch: int) -> None:
        """Time a batch of one item, warmed up; what a batch would take if each item took as long.

        Args:
            run_of: Returns one forward pass over so many items.
            batch: The probe's batch.
            min_batch: Smallest batch that the model accepts.
        """
        if batch == 1 or min_batch > 1:
            why = "its batch is 1" if batch == 1 else f"its model takes no batch below {min_batch}"
            self._note("batch_1", None, 0, f"not applicable to this probe: {why}")
            return
        run = run_of(1)
        latency_ms = warm_up(self._device, run, lambda _: None)
        latencies_ms = self._block(run, _passes(latency_ms))
        self._add("batch_1", [value * batch for value in latencies_ms])

    def _add(self, mistake: str, latencies_ms: list[float]) -> None:
        self._note(mistake, quantile(sorted(latencies_ms), 0.5), len(latencies_ms))

    def _note(
        self, mistake: str, latency_ms: float | None, samples: int, not_applicable: str = ""
    ) -> None:
        names = ("mistake", "latency_ms", "samples", "not_applicable")
        self.found.append(dict(zip(names, (mistake, latency_ms, samples, not_applicable))))

    def _block(self, run: Runnable, runs: int) -> list[float]:
        with garbage_collection_paused():
            return self._device.time_block(run, runs, self._before)

    def _on_host(self, run: Runnable, runs: int) -> list[float]:
        """Time passes with the host's clock; each begins on an idle device."""

        def prepare() -> None:
            if self._before is not None:
                self._before()
            self._device.synchronize()

        with garbage_collection_paused():
            latencies_ms = host_times_ms(run, runs, prepare, self._clock)
        self._device.synchronize()
        return latencies_ms


def _passes(latency_ms: float) -> int:
    return max(MEDIAN_PASSES_MIN, search_step_runs(latency_ms))
