"""Warm-up, sampling and the steady-state window, on a scripted device and on the CPU."""

import functools
import gc
import itertools
import math
import random
import statistics
import threading
import time
import weakref

import pytest
from costprobe_probes.contention import PassDelays
from costprobe_probes.host_memory import HostMemory
from costprobe_probes.stats import StopRule, WindowSettings, random_phase_s
from fakes.lazy import LazyModule

torch = LazyModule("torch")
probe_device = LazyModule("costprobe_probes.device")
timing = LazyModule("costprobe_probes.timing")


class Scripted:
    """A device with a scripted latency for each block; the last repeats indefinitely."""

    def __init__(self, *block_latencies_ms):
        last = itertools.repeat(block_latencies_ms[-1])
        self.latencies_ms = itertools.chain(block_latencies_ms, last)
        self.blocks, self.collecting = [], []

    def time_block(self, run, runs, before=None, watch=None):
        for _ in range(runs):
            (before or nothing)()
            (watch or nothing)()
            run()
        self.blocks.append(runs)
        self.collecting.append(gc.isenabled())
        return [next(self.latencies_ms)] * runs


class Settling:
    """A device whose passes take `latency_ms` of the time since its first one; it has its own clock."""

    def __init__(self, latency_ms):
        self.latency_ms = latency_ms
        self.now_s = 0.0

    def time_block(self, run, runs, before=None, watch=None):  # noqa: ARG002 - the contract's
        found = []
        for _ in range(runs):
            (before or run)()
            found.append(self.latency_ms(self.now_s))
            self.now_s += found[-1] / 1000
        return found

    def warm_up(self):
        """Return the latency after the warm-up, and how long it took."""
        shares = []
        latency_ms = timing.warm_up(self, nothing, shares.append, clock=lambda: self.now_s)
        assert all(0 <= share <= 1 for share in shares)
        return latency_ms, self.now_s


def nothing():
    return None


def test_warm_up_lasts_a_second_and_until_latency_has_no_slope():
    rng = random.Random(1)
    for latency_ms, expected_ms, least_s, most_s in (
        (lambda _: 2.0, 2.0, 1.0, 1.2),
        # A clock that settles within 3 s: the rest of the way is less than 2 %.
        (lambda t_s: 2.0 * (1 - 0.2 * math.exp(-t_s / 3)), 2.0, 6, 10.2),
        # Noise is no slope, and slow passes need five blocks.
        (lambda _: max(0.1, rng.gauss(2.0, 0.6)), None, 1.0, 3),
        (lambda _: 300.0, 300.0, 1.0, 6),
        (lambda t_s: 100.0 + 10 * t_s, None, 10, 12),
    ):
        settled_ms, took_s = Settling(latency_ms).warm_up()
        assert least_s <= took_s < most_s
        assert expected_ms in (None, pytest.approx(settled_ms, rel=0.02))


def sample(device, delays=None):
    return timing.sample(
        device,
        nothing,
        latency_ms=2.0,
        rule=StopRule(300, 60.0),
        min_runs=300,
        on_progress=lambda _: None,
        delays=delays,
    )


def test_passes_that_others_delayed_are_left_out_of_a_contended_run():
    device = Scripted(2.0)
    sampled = sample(device)
    assert device.blocks == [50] * 10
    assert (sampled.stop_reason, sampled.latencies_ms) == ("runs", [2.0] * 500)
    assert sampled.undelayed() is sampled
    waited_s = itertools.accumulate(itertools.repeat(0.001))
    sampled = sample(Scripted(2.0), PassDelays(lambda: next(waited_s), lambda: 0.0, 2.0))
    # Half of each pass was waiting.
    assert all(sampled.delayed)
    assert sampled.undelayed() is sampled
    blocks = Scripted(*[2.0, 9.0] * 5000)
    stolen = itertools.cycle([0.0, 0.06])
    sampled = sample(blocks, PassDelays(lambda: 5.0, lambda: next(stolen), 2.0))
    assert sampled.delayed[:100] == [False] * 50 + [True] * 50
    alone = sampled.undelayed()
    assert set(alone.latencies_ms) == {2.0}
    assert (alone.rel_err, alone.unsteady) == (0.0, False)
    # Too few passes without delay are no figure.
    few = sampled._replace(delayed=[False] * 9 + [True] * (len(sampled.delayed) - 9))
    assert few.undelayed() is few


ALIVE = weakref.WeakSet()


class Cycle:
    """Only garbage collection frees it."""

    def __init__(self):
        self.self = self
        ALIVE.add(self)


def test_garbage_is_collected_between_blocks_and_not_within_them():
    device, most = Scripted(2.0), []
    keep = lambda _: most.append(len(ALIVE))  # noqa: E731
    rule = StopRule(1000, 60.0)
    timing.sample(device, Cycle, latency_ms=2.0, rule=rule, min_runs=1000, on_progress=keep)
    assert (device.blocks, most) == ([50] * 20, [50] * 20)
    assert not any(device.collecting)
    load = run_load(lambda: most.append(len(ALIVE)) or Cycle(), 1.0)
    assert load.passes > 20
    assert max(most) <= 50
    with pytest.raises(RuntimeError, match="out of memory"), timing.garbage_collection_paused():
        raise RuntimeError("out of memory")
    assert gc.isenabled()
    gc.disable()
    try:
        with timing.garbage_collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def run_load(run, latency_ms, settings=None):
    device = probe_device.CpuDevice(HostMemory())
    return timing.run_load(
        device,
        run,
        latency_ms=latency_ms,
        settings=settings,
        on_progress=lambda _: None,
        loop_s=0.1,
    )


def test_throughput_is_that_of_the_same_loop_with_and_without_a_window():
    instants_ns, marked = [], threading.Event()

    def run():
        # After the loop a pass takes at least five times as long.
        is_loop = len(instants_ns) < 2 or instants_ns[-1] - instants_ns[0] < 0.1e9
        time.sleep(0.002 if is_loop else 0.01)
        instants_ns.append(time.monotonic_ns())

    alone = run_load(run, 2.0)
    assert alone.window.start_ns == alone.window.steady_start_ns
    assert alone.passes == len(instants_ns)
    seconds = (alone.window.end_ns - alone.window.start_ns) / 1e9
    assert alone.pass_s == pytest.approx(seconds / alone.passes)
    instants_ns.clear()
    marked.set()
    windowed = run_load(run, 2.0, WindowSettings(0.2, 0.0, marked, lambda *_: None))
    loop_s = (windowed.window.start_ns - windowed.window.steady_start_ns) / 1e9
    looped = sum(t_ns <= windowed.window.start_ns for t_ns in instants_ns)
    assert windowed.pass_s == pytest.approx(loop_s / looped, rel=0.1)
    # The window's own passes are those of its energy.
    assert windowed.passes < len(instants_ns) - looped
    # Of slow passes, that of ten.
    assert run_load(lambda: time.sleep(0.02), 20.0).passes >= 10


def test_window_counts_passes_between_its_edges_and_load_continues_after_it():
    marked, passes, edges = threading.Event(), [], {}

    def run():
        passes.append(time.monotonic_ns())
        time.sleep(0.002)

    def on_edge(edge, t_ns):
        edges[edge] = (t_ns, len(passes))
        marked.set()

    settings = WindowSettings(window_s=0.2, tail_s=1e6, marked=marked, on_edge=on_edge)
    window, completed, *_ = run_load(run, 2.0, settings)
    (start_ns, before), (end_ns, after) = edges["window_start"], edges["window_end"]
    assert (window.start_ns, window.end_ns) == (start_ns, end_ns)
    assert completed == after - before
    assert completed == sum(start_ns <= t_ns < end_ns for t_ns in passes)
    assert window.end_ns - window.start_ns >= 0.2e9
    # Load starts before the window and continues until `marked`, which ends the tail early.
    assert before > 0
    assert len(passes) > after
    assert window.steady_start_ns < window.start_ns
    assert window.end_ns < window.steady_end_ns


def test_load_begins_at_a_random_phase_of_the_power_sensor():
    called_ns = time.monotonic_ns()
    settings = WindowSettings(0.01, 0.05, threading.Event(), lambda *_: None, phase_s=0.07)
    window, *_ = run_load(nothing, 0.001, settings)
    assert window.steady_start_ns - called_ns >= 0.07e9
    # The tail ends at its limit if the sensors never read.
    assert window.steady_end_ns - window.end_ns >= 0.05e9
    random.seed(0)
    phases_s = [random_phase_s() for _ in range(1000)]
    assert (0, 0.1) <= (min(phases_s), max(phases_s)) <= (0.01, 0.1)
    assert statistics.fmean(phases_s) == pytest.approx(0.05, abs=0.01)
    # The seed that an operator's model may set gives the same phase in no two runs.
    random.seed(0)
    assert random_phase_s() not in phases_s


def test_pass_is_timed_without_the_flush_before_it():
    now_ns, calls = [0], []

    def take(ms, name):
        now_ns[0] += ms * 1_000_000
        calls.append(name)

    taken = functools.partial(take, 1, "run"), 3, functools.partial(take, 5, "flush")
    assert probe_device.host_times_ms(*taken, lambda: now_ns[0]) == [1.0] * 3
    assert len(probe_device.CpuDevice(HostMemory()).time_block(*taken)) == 3
    assert calls == ["flush", "run"] * 6


def test_headroom_is_resident_plus_available_memory_less_the_reserve(tmp_path):
    # A tenth, and at least 2 GiB.
    assert [probe_device.reserved_bytes(gib << 30) >> 30 for gib in (8, 80)] == [2, 8]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 41943040 kB\nMemAvailable: 16777216 kB\n")
    (tmp_path / "proc/self/status").write_text("VmRSS: 1048576 kB\n")
    # 1 GiB resident plus 16 GiB available, less a tenth of 40 GiB.
    device = probe_device.CpuDevice(HostMemory(str(tmp_path)))
    assert device.headroom_bytes() == 13 << 30


def test_flush_writes_more_than_the_largest_cache(tmp_path):
    sizes = {"index0": "48K", "index1": "32K", "index2": "2048K", "index3": "36M", "index4": "odd"}
    for name, size in sizes.items():
        folder = tmp_path / "sys/devices/system/cpu/cpu0/cache" / name
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert probe_device.last_level_cache_bytes(str(tmp_path)) == 36 << 20
    assert probe_device.last_level_cache_bytes(str(tmp_path / "nowhere")) == 0
    flush = probe_device.CpuDevice(HostMemory()).cache_flush()
    written = flush()
    assert written.numel() * 4 >= 2 * probe_device.last_level_cache_bytes()
    assert not written.any()


class SimulatedCuda:
    """A GPU that runs kernels in order, and a host that launches them; all times are in us."""

    LAUNCH_US, CYCLES_PER_US = 5, 1250

    class Stream:
        def __init__(self, *_, **__):
            pass

        @staticmethod
        def priority_range():
            return 0, -5

    def __init__(self):
        self.host_us = self.free_us = 0.0

    def set_device(self, _):
        """Nothing: it is the only one."""

    def synchronize(self, _=None):
        self.host_us = max(self.host_us, self.free_us)

    def launch(self, kernel_us):
        self.host_us += self.LAUNCH_US
        self.free_us = max(self.host_us, self.free_us) + kernel_us

    def _sleep(self, cycles):
        self.launch(cycles / self.CYCLES_PER_US)

    def Event(self, **_):  # noqa: N802 - torch's name
        return SimulatedEvent(self)


class SimulatedEvent:
    def __init__(self, cuda):
        self.cuda, self.at_us = cuda, 0.0

    def record(self):
        self.at_us = max(self.cuda.host_us, self.cuda.free_us)

    def query(self):
        return self.at_us <= self.cuda.host_us

    def synchronize(self):
        self.cuda.host_us = max(self.cuda.host_us, self.at_us)

    def elapsed_time(self, end):
        return (end.at_us - self.at_us) / 1000


def test_launch_overhead_is_the_latency_less_the_time_of_the_device():
    """Ten kernels of 2 us, launched every 5 us: a pass takes 50 us, and 20 us on the device."""
    cuda = SimulatedCuda()
    device = probe_device.CudaDevice(0, cuda)

    def run(kernel_us=2):
        for _ in range(10):
            cuda.launch(kernel_us)

    def flush():
        cuda.launch(100)

    assert device.time_block(run, 3)[1:] == pytest.approx([0.05] * 2)
    # A cold pass begins on an idle device: with its first launch, and until its last kernel ends.
    assert device.time_block(run, 3, flush) == pytest.approx([0.052] * 3)
    # What is read before a pass is no part of it, and does not empty the queue.
    slow = functools.partial(run, 200)
    watched = []
    assert device.time_block(slow, 3, None, lambda: watched.append(cuda.free_us)) == pytest.approx(
        [2.005, 2.0, 2.0]
    )
    assert len(set(watched)) == 3
    for before in (None, flush):
        assert timing.device_time_ms(device, run, 0.05, before) == pytest.approx(0.02)
    # Where kernels are longer than launches, a pass takes as long as they do.
    assert device.time_block(slow, 3)[1:] == pytest.approx([2.0] * 2)
    assert timing.device_time_ms(device, slow, 2.0) == pytest.approx(2.0)

    def run_and_wait():
        run()
        cuda.synchronize()
        run()

    # A pass that waits for its own kernels fits into no queue.
    assert timing.device_time_ms(device, run_and_wait, 0.1) is None
    assert timing.device_time_ms(probe_device.CpuDevice(HostMemory()), nothing, 1.0) is None


def test_back_to_back_passes_of_a_gpu_have_its_rate(monkeypatch):
    cuda = SimulatedCuda()
    device = probe_device.CudaDevice(0, cuda)
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(cuda.host_us * 1000))

    def run():
        cuda.launch(1000 if cuda.host_us < 0.7e6 else 1050)

    load = timing.run_load(
        device, run, latency_ms=1.0, settings=None, on_progress=nothing, loop_s=1.0
    )
    assert load.pass_s == pytest.approx(1.015e-3, rel=0.01)
    assert load.unsteady
