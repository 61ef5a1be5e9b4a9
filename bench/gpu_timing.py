"""Steps of gpu_check.py that time and load a GPU themselves, without a daemon.

A step gets its folder and the device ("gpu" or "cpu"), and returns what it found; `missed` lists the goals
that it missed.
"""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

# Two ways of timing the same passes agree within this share.
AGREEMENT = 0.1
DEVICE_BOUND_MS = 1.0
# Flushing without a wait hides a part of the launch, never adds to it.
COLD_TOLERANCE = 0.02
# Share of the copy bandwidth that one token of a decoder reaches as a CUDA graph.
GRAPH_SHARE = 0.45
# How far the power of a square wave may be from that of the energy counter.
POWER_TOLERANCE = 0.05
# How far a pass after the first second at full load may be from the last ones.
SETTLED = 0.02
# Clock cycles for which a kernel holds the queue, so that passes are queued before they run.
HELD_CYCLES = 10_000_000
BUFFER_BYTES = 256 << 20
WAVES_S = (0.02, 0.05, 0.1, 0.1333, 0.2)


def nvml() -> tuple[Any, Any]:
    """Return pynvml and the handle of the first GPU."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)


def event_times_ms(
    function: Callable[[], object], runs: int, before: Callable[[], object] | None = None
) -> list[float]:
    """Return the times of passes between two events of the device, in ms."""
    import torch

    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(runs)
    ]
    torch.cuda.synchronize()
    for start, end in events:
        if before is not None:
            before()
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def median_ms(
    function: Callable[[], object], runs: int, before: Callable[[], object] | None = None
) -> float:
    return statistics.median(event_times_ms(function, runs, before))


def back_to_back_ms(function: Callable[[], object], seconds: float = 1.0) -> float:
    """Return the time of a pass in a loop that synchronizes each 20 passes, in ms."""
    import torch

    for _ in range(20):
        function()
    torch.cuda.synchronize()
    began_s, passes = time.perf_counter(), 0
    while time.perf_counter() - began_s < seconds:
        for _ in range(20):
            function()
        passes += 20
        torch.cuda.synchronize()
    return (time.perf_counter() - began_s) / passes * 1e3


def differ(first: float, second: float, tolerance: float) -> bool:
    return abs(first / second - 1) > tolerance


def fields(_: Path, _device: str) -> dict[str, Any]:
    """Return the raw fields of power, energy and violations, and whether GPM is supported."""
    n, handle = nvml()
    found: dict[str, Any] = {}
    power = ("POWER_AVERAGE", "POWER_INSTANT", "ENERGY")
    others = [
        name
        for name in ("PERF_POLICY_POWER", "PERF_POLICY_THERMAL")
        if hasattr(n, f"NVML_FI_DEV_{name}")
    ]
    asked = [(name, scope) for scope in (0, 1, 2) for name in power]
    for name, scope in [*asked, *((name, 0) for name in others)]:
        field = getattr(n, f"NVML_FI_DEV_{name}")
        (value,) = n.nvmlDeviceGetFieldValues(handle, [(field, scope)])
        found[f"{name} {scope}"] = (value.nvmlReturn, value.valueType, value.value.ullVal)
    for name in ("POWER", "THERMAL"):
        policy = getattr(n, f"NVML_PERF_POLICY_{name}")
        violation = n.nvmlDeviceGetViolationStatus(handle, policy)
        found[f"violation {name} ns"] = violation.violationTime
    with suppress(n.NVMLError):
        found["gpm"] = bool(n.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    return found


def timings(function: Callable[[], object]) -> dict[str, float]:
    """Return what each way of timing reports for one pass, in ms."""
    import torch
    from triton.testing import do_bench

    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    cache, large = (
        torch.empty(size // 4, dtype=torch.int32, device="cuda")
        for size in (2 * cache_bytes, BUFFER_BYTES)
    )

    def flush_and_wait() -> None:
        cache.zero_()
        torch.cuda.synchronize()

    def hold() -> None:
        torch.cuda._sleep(HELD_CYCLES)  # noqa: SLF001 - the one way to hold the queue

    def flush_and_hold() -> None:
        cache.zero_()
        hold()

    for _ in range(50):
        function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(20):
            function()
        torch.cuda.synchronize()
    kernels_us = sum(
        getattr(event, "self_device_time_total", 0) for event in profile.key_averages()
    )
    return {
        "warm": median_ms(function, 300),
        "back to back": back_to_back_ms(function),
        "cold, flushed": median_ms(function, 300, cache.zero_),
        "cold, 256 MB": median_ms(function, 300, large.zero_),
        "cold, flushed and synchronized": median_ms(function, 300, flush_and_wait),
        "cold, held": median_ms(function, 100, flush_and_hold),
        "held": median_ms(function, 100, hold),
        "graph": median_ms(graph.replay, 300),
        "cold, graph": median_ms(graph.replay, 300, cache.zero_),
        "do_bench": float(do_bench(function, return_mode="median")),
        "profiler": kernels_us / 20e3,
    }


def definitions(_: Path, _device: str) -> dict[str, Any]:
    """Return what each way of timing reports for launch-bound and device-bound passes."""
    import torch
    from costprobe_probes.sources.builtin import KINDS
    from torch import nn

    pointwise = nn.Sequential(*[nn.GELU()] * 9).cuda()
    values = torch.randn(64, 1024, device="cuda")
    model, inputs = KINDS["transformer"]()
    model = model.eval().cuda().bfloat16()
    passes: dict[str, Callable[[], object]] = {"pointwise": lambda: pointwise(values)}
    for batch in (8, 256):
        batch_inputs = inputs(batch).cuda().bfloat16()
        passes[f"transformer {batch}"] = partial(model, batch_inputs)
    with torch.inference_mode():
        found = {name: timings(function) for name, function in passes.items()}
    missed = []
    for name, row in found.items():
        if row["cold, flushed and synchronized"] < row["warm"] * (1 - COLD_TOLERANCE):
            missed.append(f"{name}: cold is faster than warm")
        # Between short kernels there is time that a graph shortens and the profiler leaves out.
        is_bound_by_device = row["held"] > DEVICE_BOUND_MS
        missed += [
            f"{name}: {other} and held differ by more than {AGREEMENT:.0%}"
            for other in ("graph", "profiler")
            if is_bound_by_device and differ(row[other], row["held"], AGREEMENT)
        ]
    return {"ms": found, "missed": missed}


def roofline(folder: Path, _device: str) -> dict[str, Any]:
    """Return the share of the copy bandwidth that a step of the 8B decoder reaches."""
    import torch
    from costprobe_probes.sources.builtin import Decoder
    from costprobe_probes.sources.kinds import SHAPES

    copy_bytes_per_ms = _copy_bytes_per_ms()
    found: dict[str, Any] = {"copy_tb_per_s": copy_bytes_per_ms / 1e9}
    with torch.device("meta"):
        model = Decoder(SHAPES["8B"], 512, is_prefill=False).to(torch.bfloat16)
    model.to_empty(device="cuda")
    model.fill(0)
    model.eval()
    read = sum(one.numel() for one in model.parameters()) - model.embedding.weight.numel()
    cases = [(mode, batch) for mode in ("eager", "graph") for batch in (1, 16, 64)]
    with torch.inference_mode():
        for mode, batch in [*cases, ("compiled", 16)]:
            tokens = torch.randint(0, 128_000, (batch, 1), device="cuda")
            cache = torch.randn(model.cache_shape(batch), device="cuda", dtype=torch.bfloat16)
            chosen = torch.compile(model, dynamic=False) if mode == "compiled" else model
            ms = _decode_ms(partial(chosen, tokens, cache), is_captured=mode != "eager")
            moved_bytes = 2 * (read + cache.numel())
            found[f"{mode} {batch}"] = {
                "ms": ms,
                "share_of_copy": moved_bytes / ms / copy_bytes_per_ms,
            }
            # What is known if the step is ended by its limit.
            (folder / "roofline.part.json").write_text(json.dumps(found))
    share = found["graph 16"]["share_of_copy"]
    is_low = share < GRAPH_SHARE
    missed = [f"graph 16: {share:.0%} of the copy bandwidth, not {GRAPH_SHARE:.0%}"]
    return {**found, "missed": missed if is_low else []}


def _copy_bytes_per_ms() -> float:
    """Return the bandwidth of a copy on the device: bytes read and written in a ms."""
    import torch

    source = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / median_ms(partial(target.copy_, source), 20)


def _decode_ms(function: Callable[[], object], *, is_captured: bool) -> float:
    """Return the median time of a step in ms, as a CUDA graph on request."""
    import torch

    for _ in range(4):
        function()
    if not is_captured:
        return median_ms(function, 40)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return median_ms(graph.replay, 40)


def steady(_: Path, _device: str) -> dict[str, Any]:
    """Return the time of a pass in the first minute at full load, from idle."""
    import torch

    n, handle = nvml()
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    time.sleep(8)
    began_s, rows = time.monotonic(), []
    while (now_s := time.monotonic() - began_s) < 50:
        ms = median_ms(lambda: matrix @ matrix, 60)
        rows.append((now_s, ms, n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM)))
    last_ms = statistics.median(ms for _, ms, _ in rows[-20:])
    spans = ((0, 0.3), (0.3, 1), (1, 3), (3, 10), (10, 30), (30, 50))
    ratios = {
        f"{start:g} to {end:g} s": statistics.median(within) / last_ms
        for start, end in spans
        if (within := [ms for at_s, ms, _ in rows if start <= at_s < end])
    }
    settled = ratios["1 to 3 s"]
    missed = [f"1 to 3 s: {settled:.3f} of the last seconds; the warm-up is too short"]
    is_off = differ(settled, 1, SETTLED)
    return {"ratio_to_last": ratios, "rows": rows[::8], "missed": missed if is_off else []}


@contextmanager
def square_wave(period_s: float) -> Iterator[None]:
    """Load the GPU for one half of each period."""
    import torch

    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    passes = max(1, int(period_s / 2 / (median_ms(lambda: matrix @ matrix, 100) / 1e3)))
    stop = threading.Event()

    def load() -> None:
        due_s = time.perf_counter()
        while not stop.is_set():
            for _ in range(passes):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()
            due_s += period_s
            time.sleep(max(0.0, due_s - time.perf_counter()))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def power(_: Path, _device: str) -> dict[str, Any]:
    """Return average and instantaneous power beside the energy counter, under square waves of load."""
    n, handle = nvml()
    asked = (n.NVML_FI_DEV_POWER_AVERAGE, n.NVML_FI_DEV_POWER_INSTANT)
    found, missed = {}, []
    for period_s in WAVES_S:
        polls: list[list[float]] = []
        with square_wave(period_s):
            time.sleep(1.5)
            first_mj = n.nvmlDeviceGetTotalEnergyConsumption(handle)
            began_s = time.monotonic()
            while time.monotonic() - began_s < 8:
                values = n.nvmlDeviceGetFieldValues(handle, [(field, 0) for field in asked])
                polls.append([value.value.uiVal / 1e3 for value in values])
                time.sleep(0.02)
            used_j = (n.nvmlDeviceGetTotalEnergyConsumption(handle) - first_mj) / 1e3
            counter_w = used_j / (time.monotonic() - began_s)
        average_w, instant_w = (statistics.fmean(column) for column in zip(*polls, strict=True))
        name = f"{period_s * 1e3:.0f} ms"
        found[name] = {"counter_w": counter_w, "average_w": average_w, "instant_w": instant_w}
        if differ(average_w, counter_w, POWER_TOLERANCE):
            missed.append(f"{name}: average {average_w:.0f} W, counter {counter_w:.0f} W")
    return {"waves": found, "missed": missed}
