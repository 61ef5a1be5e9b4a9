"""A host's GPUs as NVML shows them, scripted by the test through a memory-mapped file.

    fake = FakeNvml(tmp_path, gpus=8)
    subprocess.Popen([...], env={**os.environ, **fake.env()})
    fake.gpus[0].set_power(300.0)
    fake.gpus[3].vanish()
    hang = fake.hang("nvmlDeviceGetPowerUsage", gpu=2)
    hang.clear()

The library is built from `nvml/fake_nvml.c` with gcc, once per version of its source.
"""

import ctypes
import hashlib
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml" / "fake_nvml.c"
MAX_GPUS = 16
MAX_SEGMENTS = 256
MAX_RULES = 64
MAX_PIDS = 32
MAX_COUNTS = 64
NAME_LENGTH = 96
GPU_IS_LOST = 15


class _Segment(ctypes.Structure):
    _fields_ = (("from_ns", ctypes.c_int64), ("power_w", ctypes.c_double))


class _Gpu(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * NAME_LENGTH),
        ("uuid", ctypes.c_char * NAME_LENGTH),
        ("segment_count", ctypes.c_int64),
        ("segments", _Segment * MAX_SEGMENTS),
        ("counter_zero_ns", ctypes.c_int64),
        ("counter_step_ns", ctypes.c_int64),
        ("counter_base_mj", ctypes.c_uint64),
        ("util_pct", ctypes.c_uint64),
        ("mem_util_pct", ctypes.c_uint64),
        ("mem_total_bytes", ctypes.c_uint64),
        ("mem_reserved_bytes", ctypes.c_uint64),
        ("mem_used_bytes", ctypes.c_uint64),
        ("temp_c", ctypes.c_int64),
        ("sm_clock_mhz", ctypes.c_uint64),
        ("mem_clock_mhz", ctypes.c_uint64),
        ("event_reasons", ctypes.c_uint64),
        ("throttle_since_ns", ctypes.c_int64),
        ("throttle_base_ns", ctypes.c_uint64 * 2),
        ("throttle_share", ctypes.c_double * 2),
        ("ecc_uncorrected", ctypes.c_uint64),
        ("pid_count", ctypes.c_int64),
        ("pids", ctypes.c_uint64 * MAX_PIDS),
        ("mps_pid_count", ctypes.c_int64),
        ("mps_pids", ctypes.c_uint64 * MAX_PIDS),
        ("busy_pid_count", ctypes.c_int64),
        ("busy_pids", ctypes.c_uint64 * MAX_PIDS),
    )


class _Rule(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_char * NAME_LENGTH),
        ("gpu", ctypes.c_int64),
        ("code", ctypes.c_int64),
        ("hang", ctypes.c_int64),
    )


class _Control(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("gpu_count", ctypes.c_int64),
        ("driver_version", ctypes.c_char * NAME_LENGTH),
        ("nvml_version", ctypes.c_char * NAME_LENGTH),
        ("uninitialized_at_ns", ctypes.c_int64),
        ("upgraded_at_ns", ctypes.c_int64),
        ("rule_count", ctypes.c_int64),
        ("rules", _Rule * MAX_RULES),
        ("gpus", _Gpu * MAX_GPUS),
    )


class _Count(ctypes.Structure):
    _fields_ = (("function", ctypes.c_char * NAME_LENGTH), ("calls", ctypes.c_uint64 * 17))


def require_gcc() -> str:
    """The path of gcc; without one the test is skipped, and fails where CI=true."""
    gcc = shutil.which("gcc")
    if gcc is None:
        reason = "the fake NVML is built with gcc: apt-get install gcc libc6-dev"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return gcc


def build_library() -> Path:
    """The folder that holds the compiled libnvidia-ml.so.1, built on first use."""
    gcc = require_gcc()
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"infercost-fakes-{os.getuid()}" / digest
    library = folder / "libnvidia-ml.so.1"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{library.name}.{os.getpid()}"
        flags = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
        subprocess.run([gcc, *flags, "-o", str(partial), str(SOURCE)], check=True)
        partial.rename(library)
    return folder


def _map_structure(path: Path, kind, length: int):
    path.write_bytes(bytes(length))
    with path.open("r+b") as file:
        return kind.from_buffer(mmap.mmap(file.fileno(), length))


class Rule:
    """A scripted misbehaviour, in force until cleared."""

    def __init__(self, rule: _Rule) -> None:
        self._rule = rule

    def clear(self) -> None:
        """Ends it; a call that hangs returns now."""
        self._rule.code = 0
        self._rule.hang = 0


class FakeGpu:
    """One GPU's script."""

    def __init__(self, nvml: "FakeNvml", gpu: _Gpu, index: int) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._lost: Rule | None = None
        self.index = index

    def set(self, **values: int | str) -> None:
        """Sets plain values: util_pct, mem_used_bytes, temp_c, sm_clock_mhz, event_reasons, ..."""
        for name, value in values.items():
            getattr(self._gpu, name)  # an unknown name is an error, not a new attribute
            setattr(self._gpu, name, value.encode() if isinstance(value, str) else value)

    def set_power(self, power_w: float, at_ns: int | None = None) -> None:
        """Power in W from an instant on (now by default); instants must not go back.

        A script begins with 60 W an hour ago, so that a test may set the recent past as well.
        """
        count = self._gpu.segment_count
        if count == MAX_SEGMENTS:
            raise ValueError(f"a script holds at most {MAX_SEGMENTS} steps of power")
        segment = self._gpu.segments[count]
        segment.from_ns = time.monotonic_ns() if at_ns is None else at_ns
        segment.power_w = power_w
        self._gpu.segment_count = count + 1

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        """The truth: the integral of the scripted power over a region, in J."""
        steps = self._gpu.segments[: self._gpu.segment_count]
        ends = [step.from_ns for step in steps[1:]] + [end_ns]
        joules = 0.0
        for i, (step, until) in enumerate(zip(steps, ends, strict=True)):
            since = start_ns if i == 0 else max(start_ns, step.from_ns)
            joules += max(0, min(until, end_ns) - since) * step.power_w / 1e9
        return joules

    def reset_counter(self) -> None:
        """The energy counter starts again from 0, as after a reload of the driver."""
        self._gpu.counter_base_mj = 0
        self._gpu.counter_zero_ns = time.monotonic_ns()

    def throttle(self, power_share: float = 0.0, thermal_share: float = 0.0) -> None:
        """From now on this share of time counts as held back by power and by heat."""
        now_ns = time.monotonic_ns()
        passed_ns = now_ns - self._gpu.throttle_since_ns
        for i, share in enumerate((power_share, thermal_share)):
            self._gpu.throttle_base_ns[i] += int(self._gpu.throttle_share[i] * passed_ns)
            self._gpu.throttle_share[i] = share
        self._gpu.throttle_since_ns = now_ns

    def set_processes(
        self,
        pids: Sequence[int],
        mps_pids: Sequence[int] = (),
        busy_pids: Sequence[int] | None = None,
    ) -> None:
        """The processes on it, directly and through MPS, and which of them work: all unless said."""
        busy = [*pids, *mps_pids] if busy_pids is None else busy_pids
        for name, values in (("pid", pids), ("mps_pid", mps_pids), ("busy_pid", busy)):
            getattr(self._gpu, f"{name}s")[: len(values)] = list(values)
            setattr(self._gpu, f"{name}_count", len(values))

    def vanish(self) -> None:
        """It falls off the bus: every call answers GPU_IS_LOST."""
        self._lost = self._nvml.fail("*", GPU_IS_LOST, gpu=self.index)

    def come_back(self) -> None:
        """It answers again."""
        if self._lost is not None:
            self._lost.clear()


class FakeNvml:
    """A host with NVIDIA GPUs and a driver, for processes started with `env()`.

    Args:
        folder: Where the control file lives; a test's tmp_path.
        gpus: How many GPUs, at most 16, each an idle board of 60 W.
        counter_step_ms: How often a GPU's energy counter advances.
    """

    def __init__(self, folder: Path, gpus: int = 1, counter_step_ms: int = 100) -> None:
        self._library = build_library()
        self._control_path = folder / "nvml.control"
        self._calls_path = folder / "nvml.calls"
        size = ctypes.sizeof(_Control)
        self._control = _map_structure(self._control_path, _Control, size)
        counts = _Count * MAX_COUNTS
        self._counts = _map_structure(self._calls_path, counts, ctypes.sizeof(counts))
        self._control.size = size
        self._control.gpu_count = gpus
        self._control.driver_version = b"580.65.06"
        self._control.nvml_version = b"13.580.65.06"
        self.gpus = tuple(FakeGpu(self, self._control.gpus[i], i) for i in range(gpus))
        for gpu in self.gpus:
            gpu.set(
                name="NVIDIA Fake 80GB",
                uuid=f"GPU-0000{gpu.index:04d}-fake-4000-8000-000000000000",
                counter_step_ns=counter_step_ms * 1_000_000,
                counter_base_mj=1_000_000_000,
                counter_zero_ns=time.monotonic_ns(),
                throttle_since_ns=time.monotonic_ns(),
                mem_total_bytes=80 << 30,
                mem_reserved_bytes=1 << 29,
                mem_used_bytes=1 << 30,
                temp_c=35,
                sm_clock_mhz=1980,
                mem_clock_mhz=2619,
            )
            gpu.set_power(60.0, at_ns=time.monotonic_ns() - 3600 * 10**9)

    def env(self) -> dict[str, str]:
        """Environment variables under which a process finds this library and this script."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        paths = [str(self._library), *([inherited] if inherited else [])]
        return {
            "LD_LIBRARY_PATH": ":".join(paths),
            "FAKE_NVML_CONTROL": str(self._control_path),
            "FAKE_NVML_CALLS": str(self._calls_path),
        }

    def fail(self, function: str, code: int, gpu: int | None = None) -> Rule:
        """A function ("*": every one; "field:186": one field value) answers with this code."""
        return self._add_rule(function, gpu, code=code)

    def hang(self, function: str, gpu: int | None = None) -> Rule:
        """A function does not return until the rule is cleared."""
        return self._add_rule(function, gpu, hang=1)

    def clear(self) -> None:
        """Ends every scripted misbehaviour."""
        for rule in self._control.rules:
            Rule(rule).clear()

    def uninitialize(self) -> None:
        """Every call answers UNINITIALIZED until the process initializes NVML again."""
        self._control.uninitialized_at_ns = time.monotonic_ns()

    def upgrade_driver(self, version: str) -> None:
        """Processes that hold the old library get LIB_RM_VERSION_MISMATCH; new ones work."""
        self._control.driver_version = version.encode()
        self._control.upgraded_at_ns = time.monotonic_ns()

    def calls(self, function: str, gpu: int | None = None) -> int:
        """How often a function was called, for one GPU or in all."""
        for count in self._counts:
            if count.function.decode() == function:
                return sum(count.calls) if gpu is None else count.calls[gpu]
        return 0

    def _add_rule(self, function: str, gpu: int | None, code: int = 0, hang: int = 0) -> Rule:
        used = self._control.rule_count
        free = next((r for r in self._control.rules[:used] if not r.code and not r.hang), None)
        if free is None and used == MAX_RULES:
            raise ValueError(f"a script holds at most {MAX_RULES} rules")
        rule = self._control.rules[used] if free is None else free
        rule.function = function.encode()
        rule.gpu = -1 if gpu is None else gpu
        rule.hang = hang
        rule.code = code
        self._control.rule_count = max(used, used + (free is None))
        return Rule(rule)
