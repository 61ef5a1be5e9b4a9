"""A fake NVML library whose GPUs are scripted by the test through a memory-mapped file.

    fake = FakeNvml(tmp_path, gpus=8)
    subprocess.Popen([...], env={**os.environ, **fake.env()})
    fake.gpus[0].set_power(300.0)
    fake.gpus[3].vanish()
    hang = fake.hang("nvmlDeviceGetPowerUsage", gpu=2)
    hang.clear()

Time is that of the host, unless it is simulated. A simulated time advances only by calls, so that
days take no time, and the real pynvml in the test process reads the GPUs:

    fake = FakeNvml(tmp_path, simulated_utc_ns=1_780_000_000 * 10**9)
    with fake.in_this_process():
        sensor = GpuSensor(0, library, fake.clock, faults.append)
        fake.clock.move(300)

The library is built from `nvml/fake_nvml.c` with gcc, once per version of its source.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from costprobe.core.clock import SystemClock
from fakes.c_structures import map_structure, structures
from fakes.clock import FakeClock
from fakes.programs import require

FAKES = Path(__file__).parent
GPU_IS_LOST = 15
COUNTS = 64  # MAX_COUNTS


def build_library(source: Path, soname: str) -> Path:
    """The folder that holds a compiled library, built on first use."""
    gcc = require("gcc")
    sources = (source, *sorted(FAKES.glob("script*.h")))
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"costprobe-fakes-{os.getuid()}" / digest
    library = folder / soname
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{library.name}.{os.getpid()}"
        flags = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
        subprocess.run([gcc, *flags, "-o", str(partial), str(source)], check=True)
        partial.rename(library)
    return folder


class SimulatedClock(FakeClock):
    """A clock that advances only when moved, together with the library's time.

    Args:
        control: The script of this time.
        time_ns: UTC in ns at the start.
    """

    def __init__(self, control: ctypes.Structure, time_ns: int) -> None:
        super().__init__(time_ns)
        self._control = control
        self.move(0)

    def move(self, duration_s: float) -> None:
        """Advance both clocks and the GPUs' time."""
        super().move(duration_s)
        self._control.utc_offset_ns = self.time_ns() - self.monotonic_ns()
        self._control.simulated_ns = self.monotonic_ns()


class Rule:
    """A scripted fault, active until cleared."""

    def __init__(self, rule: ctypes.Structure) -> None:
        self._rule = rule

    def clear(self) -> None:
        """Clear the fault; a hanging call returns."""
        self._rule.code = 0
        self._rule.hang = 0


class FakeGpu:
    """One GPU's script."""

    LOST = GPU_IS_LOST

    def __init__(self, nvml: "FakeNvml", gpu: ctypes.Structure, index: int) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._lost: Rule | None = None
        self._splits = -1
        self.index = index

    def set(self, **values: float | str | bytes) -> None:
        """Set plain values: util_pct, mem_used_bytes, temp_c, sm_clock_mhz, event_reasons, ..."""
        for name, value in values.items():
            getattr(self._gpu, name)  # an unknown name is an error, not a new attribute
            setattr(self._gpu, name, value.encode() if isinstance(value, str) else value)

    def count_more(self, energy_j: float = 0.0, throttled_s: float = 0.0) -> None:
        """Let the counters of energy and of both kinds of throttled time jump."""
        self._gpu.counter_base_mj += round(energy_j * 1000)
        for i in range(2):
            self._gpu.throttle_base_ns[i] += round(throttled_s * 1e9)

    def set_power(self, power_w: float, at_ns: int | None = None) -> None:
        """Set power in W from an instant on (now by default); instants must not decrease.

        A script begins with 60 W an hour ago, so that a test may set the recent past as well.
        """
        count = self._gpu.segment_count
        segment = self._gpu.segments[count]
        segment.from_ns = self._nvml.clock.monotonic_ns() if at_ns is None else at_ns
        segment.power_w = power_w
        self._gpu.segment_count = count + 1

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        """The true energy in J: the integral of the scripted power over a window."""
        segments, count = self._gpu.segments, self._gpu.segment_count
        # A script of days has thousands of steps, and windows are near the end.
        first = bisect_right(range(1, count), start_ns, key=lambda i: segments[i].from_ns)
        steps = segments[first:count]
        ends = [step.from_ns for step in steps[1:]] + [end_ns]
        joules = 0.0
        for i, (step, until) in enumerate(zip(steps, ends, strict=True)):
            since = start_ns if i == 0 else step.from_ns
            joules += max(0, min(until, end_ns) - since) * step.power_w / 1e9
        return joules

    def reset_counter(self) -> None:
        """Reset the energy counter to 0, as a reload of the driver does."""
        self._gpu.counter_base_mj = 0
        self._gpu.counter_zero_ns = self._nvml.clock.monotonic_ns()

    def throttle(self, power_share: float = 0.0, thermal_share: float = 0.0) -> None:
        """Set the shares of time throttled by power and by temperature from now on."""
        now_ns = self._nvml.clock.monotonic_ns()
        passed_ns = now_ns - self._gpu.throttle_since_ns
        for i, share in enumerate((power_share, thermal_share)):
            self._gpu.throttle_base_ns[i] += int(self._gpu.throttle_share[i] * passed_ns)
            self._gpu.throttle_share[i] = share
        self._gpu.throttle_since_ns = now_ns

    def buffer_samples(self, period_ms: int = 20, kept: int = 120) -> None:
        """Enable the driver's buffer of recent power samples."""
        self.set(samples_period_ns=period_ms * 1_000_000, samples_kept=kept)

    def split(self, *instances: int | tuple[int, ...]) -> None:
        """Partition the GPU into GPU instances; each is its slices, with one MIG device.

        A tuple is a GPU instance that compute instances share: its slices, then theirs. Each
        compute instance is a MIG device, with the memory of the GPU instance.
        """
        self._gpu.mig_mode = 1
        self._splits += 1
        shared = [each if isinstance(each, tuple) else (each, each) for each in instances]
        parts = [(slices, count) for slices, *counts in shared for count in counts]
        for i, (slices, count) in enumerate(parts):
            mig = self._gpu.migs[i]
            compute = "" if count == slices else f"{count}c."
            mig.name = f"NVIDIA Fake 80GB MIG {compute}{slices}g.{slices * 10}gb".encode()
            mig.uuid = (
                f"MIG-{self._splits:04d}{self.index:04d}-{i:04d}-4000-8000-000000000000".encode()
            )
            mig.slices = slices
            mig.compute_slices = count
            mig.mem_total_bytes = slices * (10 << 30)
        self._destroy_from(len(parts))

    def unsplit(self) -> None:
        """Destroy its MIG devices and disable MIG mode."""
        self._destroy_from(0)
        self._gpu.mig_mode = 0

    def _destroy_from(self, first: int) -> None:
        for mig in self._gpu.migs[first:]:
            mig.slices = 0
            mig.pid_count = 0
            mig.uuid = b""

    def set_mig(self, mig_index: int, pids: Sequence[int] = (), **values: int) -> None:
        """Set a MIG device's processes, and plain values such as mem_used_bytes."""
        mig = self._gpu.migs[mig_index]
        mig.pids[: len(pids)] = list(pids)
        mig.pid_count = len(pids)
        for name, value in values.items():
            setattr(mig, name, value)

    def set_processes(
        self,
        pids: Sequence[int],
        mps_pids: Sequence[int] = (),
        busy_pids: Sequence[int] | None = None,
    ) -> None:
        """Set its processes, direct and through MPS, and which of them are busy: by default all."""
        busy = [*pids, *mps_pids] if busy_pids is None else busy_pids
        self._set_pids(pid=pids, mps_pid=mps_pids, busy_pid=busy)
        self._gpu.busy_pcts[: len(busy)] = [0] * len(busy)

    def set_graphics(self, pids: Sequence[int]) -> None:
        """Set the processes that draw on it, and do not compute."""
        self._set_pids(graphics_pid=pids)

    def _set_pids(self, **kinds: Sequence[int]) -> None:
        for kind, pids in kinds.items():
            getattr(self._gpu, f"{kind}s")[: len(pids)] = list(pids)
            setattr(self._gpu, f"{kind}_count", len(pids))

    def keep_busy(self, pct_by_pid: Mapping[int, int]) -> None:
        """Set its processes with their shares of busy time in percent."""
        self.set_processes(list(pct_by_pid))
        self._gpu.busy_pcts[: len(pct_by_pid)] = list(pct_by_pid.values())

    def vanish(self) -> None:
        """Lose the GPU: every call returns LOST."""
        self._lost = self._nvml.fail("*", self.LOST, gpu=self.index)

    def come_back(self) -> None:
        """Restore the GPU."""
        if self._lost is not None:
            self._lost.clear()


class FakeDriver:
    """A vendor's library and its script, for processes started with `env()`.

    Args:
        folder: Folder of the control file; a test's tmp_path.
        gpus: How many GPUs, at most 16.
        simulated_utc_ns: UTC in ns at which a simulated time begins; None for the host's time.

    Attributes:
        NAME: Name of the fake: `NAME/fake_NAME.c` is its source.
        SONAME: Name of the library.
        GPU: Script of a GPU.
        clock: Both clocks of the script; a simulated one has `move(duration_s)`.
        gpus: Scripts of the GPUs.
    """

    NAME = ""
    SONAME = ""
    GPU = FakeGpu

    def __init__(self, folder: Path, gpus: int, simulated_utc_ns: int | None) -> None:
        source = FAKES / self.NAME / f"fake_{self.NAME}.c"
        self._library = build_library(source, self.SONAME)
        types = structures(FAKES / "script_types.h", source)
        self._control_path = folder / f"{self.NAME}.control"
        self._calls_path = folder / f"{self.NAME}.calls"
        self._control = map_structure(self._control_path, types["control"])
        self._counts = map_structure(self._calls_path, types["count"] * COUNTS)
        self._control.size = ctypes.sizeof(self._control)
        self._control.gpu_count = gpus
        self.clock = SystemClock()
        if simulated_utc_ns is not None:
            self.clock = SimulatedClock(self._control, simulated_utc_ns)
        self.gpus = tuple(self.GPU(self, self._control.gpus[i], i) for i in range(gpus))

    def env(self) -> dict[str, str]:
        """Environment variables under which a process finds this library and this script."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        paths = [str(self._library), *([inherited] if inherited else [])]
        return {
            "LD_LIBRARY_PATH": ":".join(paths),
            f"FAKE_{self.NAME.upper()}_CONTROL": str(self._control_path),
            f"FAKE_{self.NAME.upper()}_CALLS": str(self._calls_path),
        }

    @contextmanager
    def in_this_process(self):
        """Let this process load this library and script, as a new process would.

        A library stays loaded and is found by its name afterwards; it has one script at a time, and
        none at the end, as without a driver.

        Raises:
            AttributeError: A driver's own library was loaded here first.
        """
        ctypes.CDLL(str(self._library / self.SONAME))
        # The library that is loaded by this name.
        use = getattr(ctypes.CDLL(self.SONAME), f"fake_{self.NAME}_use")
        use.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
        use.restype = None
        use(bytes(self._control_path), bytes(self._calls_path))
        try:
            yield
        finally:
            use(None, None)

    def fail(self, function: str, code: int, gpu: int | None = None) -> Rule:
        """Let a function ("*": all; "field:186": one field value) return this code."""
        return self._add_rule(function, gpu, code=code)

    def hang(self, function: str, gpu: int | None = None) -> Rule:
        """Let a function hang until the fault is cleared."""
        return self._add_rule(function, gpu, hang=1)

    def clear(self) -> None:
        """Clear all scripted faults."""
        for rule in self._control.rules:
            Rule(rule).clear()

    def calls(self, function: str, gpu: int | None = None) -> int:
        """The number of calls of a function, for one GPU or in total."""
        for count in self._counts:
            if count.function.decode() == function:
                return sum(count.calls) if gpu is None else count.calls[gpu]
        return 0

    def _add_rule(self, function: str, gpu: int | None, code: int = 0, hang: int = 0) -> Rule:
        used = self._control.rule_count
        free = next((r for r in self._control.rules[:used] if not r.code and not r.hang), None)
        rule = self._control.rules[used] if free is None else free
        rule.function = function.encode()
        rule.gpu = -1 if gpu is None else gpu
        rule.hang = hang
        rule.code = code
        self._control.rule_count = max(used, used + (free is None))
        return Rule(rule)


class FakeNvml(FakeDriver):
    """A host with NVIDIA GPUs and a driver, for processes started with `env()`.

    Args:
        folder: Folder of the control file; a test's tmp_path.
        gpus: How many GPUs, at most 16, each an idle board of 60 W.
        counter_step_ms: Interval at which a GPU's energy counter advances.
        simulated_utc_ns: UTC in ns at which a simulated time begins; None for the host's time.
    """

    NAME = "nvml"
    SONAME = "libnvidia-ml.so.1"

    def __init__(
        self,
        folder: Path,
        gpus: int = 1,
        counter_step_ms: int = 100,
        simulated_utc_ns: int | None = None,
    ) -> None:
        super().__init__(folder, gpus, simulated_utc_ns)
        now_ns = self.clock.monotonic_ns()
        # The counter starts at one of its steps, so that the first one it counts is complete.
        step_ns = max(1, counter_step_ms * 1_000_000)
        zero_ns = now_ns // step_ns * step_ns
        self._control.driver_version = b"580.65.06"
        self._control.nvml_version = b"13.580.65.06"
        for gpu in self.gpus:
            gpu.set(
                name="NVIDIA Fake 80GB",
                uuid=f"GPU-0000{gpu.index:04d}-fake-4000-8000-000000000000",
                counter_step_ns=counter_step_ms * 1_000_000,
                counter_base_mj=1_000_000_000,
                counter_zero_ns=zero_ns,
                gain=1.0,
                average_window_ns=1_000_000_000,
                throttle_since_ns=now_ns,
                mem_total_bytes=80 << 30,
                mem_reserved_bytes=1 << 29,
                mem_used_bytes=1 << 30,
                temp_c=35,
                sm_clock_mhz=1980,
                mem_clock_mhz=2619,
                power_limit_mw=700_000,
                power_limit_max_mw=700_000,
                persistence_mode=1,
            )
            gpu.set_power(60.0, at_ns=now_ns - 3600 * 10**9)

    def remove(self, index: int) -> None:
        """Remove a board as a reboot does: those after it move down."""
        boards = [bytes(gpu._gpu) for gpu in self.gpus]  # noqa: SLF001 - of this script
        del boards[index]
        for gpu, board in zip(self.gpus, boards, strict=False):
            ctypes.memmove(ctypes.addressof(gpu._gpu), board, len(board))  # noqa: SLF001 - as above
        self._control.gpu_count = len(boards)

    def set_versions(self, driver: bytes, nvml: bytes) -> None:
        """Set the versions of the driver and of NVML."""
        self._control.driver_version, self._control.nvml_version = driver, nvml

    def set_process_record(self, size: int) -> None:
        """Set the bytes of a record of a process: 24, those of R535 32."""
        self._control.process_record_bytes = size

    def upgrade_driver(self, version: str) -> None:
        """Upgrade the driver: processes with the old library get LIB_RM_VERSION_MISMATCH.

        In this process a new `in_this_process` counts as a new process.
        """
        self._control.driver_version = version.encode()
        self._control.upgraded_at_ns = time.monotonic_ns()
