"""The device under test: timing, synchronization and memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Union

import torch

from costprobe_probes.cuda_driver import driver_code, driver_problem
from costprobe_probes.host_memory import HostMemory
from costprobe_probes.wire import DeviceError

GIB = 1 << 30
# Flushing a cache writes this many times its size, within these bounds.
FLUSHES = 2
FLUSH_LEAST_BYTES = 32 << 20
FLUSH_MOST_BYTES = GIB
L2_MOST_BYTES = 128 << 20
RESERVE_BYTES = 2 * GIB
# A queue is held for this time and so many passes, doubled until a pass fits into it; of passes with
# more kernels than a queue holds (about a thousand) it never does.
HOLD_MS = 1.0
HOLD_PASSES = 2
HOLD_TRIES = 3
# Of the fastest clock: a slower one holds for longer.
CYCLES_PER_MS = 2_500_000
RESERVE_SHARE = 0.1


# One forward pass: launches it.
Runnable = Callable[[], object]


def reserved_bytes(total_bytes: int) -> int:
    """Memory reserved for production workloads: a tenth of the total, at least 2 GiB."""
    return max(int(total_bytes * RESERVE_SHARE), RESERVE_BYTES)


def host_times_ms(
    run: Runnable,
    runs: int,
    before: Runnable,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[float]:
    """Time single runs with the host's clock: return how long each call took in ms.

    Args:
        run: The timed function.
        runs: Number of runs.
        before: Called before each timed run, outside the timed interval.
        clock: The clock in ns.
    """
    latencies_ms = []
    for _ in range(runs):
        before()
        start_ns = clock()
        run()
        latencies_ms.append((clock() - start_ns) / 1e6)
    return latencies_ms


class CpuDevice:
    """The CPUs of the host.

    Args:
        memory: Memory of the host.
    """

    def __init__(self, memory: HostMemory) -> None:
        self.torch_device = torch.device("cpu")
        self._memory = memory

    def synchronize(self) -> None:
        """Wait until all launched work has completed: a CPU pass is complete when it returns."""

    def mark(self) -> Callable[[], None]:
        """Return a function that waits until all work that is launched now has completed."""
        return self.synchronize

    def time_block(
        self,
        run: Runnable,
        runs: int,
        before: Runnable | None = None,
        watch: Runnable | None = None,
    ) -> list[float]:
        """Time single runs with perf_counter_ns: return their latencies in ms.

        Args:
            run: The timed function.
            runs: Number of runs.
            before: Called before each timed run, outside the timed interval; each run then begins
                on an idle device.
            watch: Called as `before`; the device need not be idle.
        """
        clock = time.perf_counter_ns
        hooks = [hook for hook in (before, watch) if hook is not None]
        if hooks:
            return host_times_ms(run, runs, lambda: [hook() for hook in hooks])
        stamps = [0] * (runs + 1)
        stamps[0] = clock()
        for index in range(1, runs + 1):
            run()
            stamps[index] = clock()
        return [(end - start) / 1e6 for start, end in zip(stamps, stamps[1:])]

    def time_queued(self, *_: object) -> list[float]:
        """Return no times: a CPU has no queue."""
        return []

    def cache_flush(self) -> Runnable:
        """Write twice the size of the largest cache."""
        return _writer(last_level_cache_bytes(), self.torch_device)

    def in_background(self) -> AbstractContextManager[None]:
        """Return an empty context: the process already runs at a low priority."""
        return nullcontext()

    def peak_bytes(self) -> int:
        """Return the peak resident memory of this process."""
        return self._memory.peak_bytes()

    def reset_peak(self) -> None:
        """Restart the peak at the current resident memory."""
        self._memory.reset_peak()

    def reserve_bytes(self) -> int:
        """Return the memory that stays reserved for other processes."""
        return reserved_bytes(self._memory.total_and_available_bytes()[0])

    def headroom_bytes(self) -> int:
        """Return the resident memory plus available memory less the reserve."""
        total, available = self._memory.total_and_available_bytes()
        return self._memory.resident_bytes() + available - reserved_bytes(total)


class CudaDevice:
    """One GPU.

    Args:
        index: Its index in torch.
        cuda: torch's module of that name, or a stand-in.
    """

    def __init__(self, index: int = 0, cuda: Any = torch.cuda) -> None:  # noqa: ANN401 - a module
        self.torch_device = torch.device("cuda", index)
        self._cuda = cuda
        cuda.set_device(self.torch_device)
        # A larger number is a lower priority (CUDA C++ Programming Guide, "Stream Priorities").
        least, _ = cuda.Stream.priority_range()
        self._stream = cuda.Stream(self.torch_device, priority=least)
        self._events: list[tuple[Any, Any]] = []

    def synchronize(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize(self.torch_device)

    def time_block(
        self,
        run: Runnable,
        runs: int,
        before: Runnable | None = None,
        watch: Runnable | None = None,
    ) -> list[float]:
        """Time single runs between CUDA events; one wait ends the block."""
        while len(self._events) < runs:
            self._events.append(self._timed_events())
        events = self._events[:runs]
        self.synchronize()
        for start, end in events:
            if before is not None:
                before()
                # Otherwise the pass is launched while the device is still busy with `before`.
                self.synchronize()
            if watch is not None:
                watch()
            start.record()
            run()
            end.record()
        self.mark()()
        self.synchronize()  # work on other streams
        return [start.elapsed_time(end) for start, end in events]

    def time_queued(
        self, run: Runnable, runs: int, latency_ms: float, before: Runnable | None = None
    ) -> list[float]:
        """Time single runs that wait in the device's queue as a whole: return their times in ms.

        Without launches within it, the time is the device's alone. A kernel that waits holds the queue
        until a run and the events around it are in it; there are no times if it cannot hold a whole run.

        Args:
            run: The timed function.
            runs: Number of runs.
            latency_ms: Approximate latency of a run.
            before: Called before each timed run, outside the timed interval.
        """
        start, end = self._timed_events()
        hold_ms, tries = HOLD_MS + HOLD_PASSES * latency_ms, HOLD_TRIES
        times_ms: list[float] = []
        while len(times_ms) < runs:
            self.synchronize()
            self._cuda._sleep(int(hold_ms * CYCLES_PER_MS))  # noqa: SLF001 - its only name
            if before is not None:
                before()
            start.record()
            run()
            end.record()
            is_held = not start.query()
            self.synchronize()
            if is_held:
                times_ms.append(start.elapsed_time(end))
                continue
            hold_ms, tries = 2 * hold_ms, tries - 1
            if tries == 0:
                return []
        return times_ms

    def mark(self) -> Callable[[], None]:
        """Record an event for which the thread waits asleep: what it runs is launching."""
        event = self._cuda.Event(blocking=True)
        event.record()
        wait: Callable[[], None] = event.synchronize
        return wait

    def _timed_events(self) -> tuple[Any, Any]:
        return self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)

    def cache_flush(self) -> Runnable:
        """Write twice the size of the L2 cache."""
        properties = self._cuda.get_device_properties(self.torch_device)
        # torch before 2.2 does not report the size: use the largest of any GPU.
        size = int(getattr(properties, "L2_cache_size", L2_MOST_BYTES))
        return _writer(size, self.torch_device)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Launch on a stream of the lowest priority."""
        self._stream.wait_stream(self._cuda.current_stream(self.torch_device))
        with self._cuda.stream(self._stream):
            yield
        self._stream.synchronize()

    def peak_bytes(self) -> int:
        """Return the peak of the memory reserved by the allocator, which no other process can use."""
        reserved: int = self._cuda.max_memory_reserved(self.torch_device)
        return reserved

    def reset_peak(self) -> None:
        """Release cached memory and restart the peak."""
        self._cuda.empty_cache()
        self._cuda.reset_peak_memory_stats(self.torch_device)

    def reserve_bytes(self) -> int:
        """Return the memory that stays reserved for other processes."""
        return reserved_bytes(self._cuda.mem_get_info(self.torch_device)[1])

    def headroom_bytes(self) -> int:
        """Return the memory reserved by this process plus free memory less the reserve."""
        free: int
        free, total = self._cuda.mem_get_info(self.torch_device)
        reserved: int = self._cuda.memory_reserved(self.torch_device)
        return reserved + free - reserved_bytes(total)


def _writer(cache_bytes: int, device: torch.device) -> Runnable:
    """Return a function that writes a buffer of twice the size of a cache, which evicts every line."""
    size = min(max(FLUSHES * cache_bytes, FLUSH_LEAST_BYTES), FLUSH_MOST_BYTES)
    buffer = torch.empty(size // 4, dtype=torch.int32, device=device)
    return buffer.zero_


def last_level_cache_bytes(root: str = "/") -> int:
    """Return the largest cache of the first processor in bytes; 0 if the kernel does not report it.

    Args:
        root: Root of the file system.
    """
    sizes = [0]
    for path in Path(root).glob("sys/devices/system/cpu/cpu0/cache/index*/size"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", text)
        if match:
            sizes.append(
                int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]
            )
    return max(sizes)


# What timing and batch search measure.
TorchDevice = Union[CpuDevice, CudaDevice]  # noqa: UP007 - evaluated on Python 3.9


def open_device(name: str) -> TorchDevice:
    """Open the device of a torch name: "cpu" or "cuda:0".

    Raises:
        DeviceError: This build of torch cannot use the device.
    """
    if name == "cpu":
        return CpuDevice(HostMemory())
    if not torch.cuda.is_available():
        built_for: str | None = torch.version.cuda
        if built_for is not None and (problem := driver_problem(driver_code())):
            raise DeviceError(f"torch {torch.__version__} cannot use CUDA: {problem}")
        if torch.version.hip is not None:
            raise DeviceError(
                f"torch {torch.__version__} is built for ROCm {torch.version.hip} and finds no GPU; let"
                " this process open /dev/kfd and /dev/dri (groups render and video), and install a"
                " build for the ROCm of this host"
            )
        build = "is a CPU build" if built_for is None else f"is built for CUDA {built_for}"
        raise DeviceError(
            f"torch {torch.__version__} {build} and finds no CUDA device; install a CUDA build that"
            " the driver supports, or for an AMD GPU a ROCm build"
        )
    try:
        return CudaDevice(int(name.partition(":")[2] or 0))
    except RuntimeError as error:
        raise DeviceError(
            f"{name} cannot be opened: see nvidia-smi or amd-smi ({error})"
        ) from error
