"""A fake AMD SMI library whose boards are scripted as those of the fake NVML.

    fake = FakeAmdsmi(tmp_path, gpus=2)
    subprocess.Popen([...], env={**os.environ, **fake.env()})
    fake.gpus[0].set_power(300.0)
    fake.gpus[1].divide(8, "CPX", "NPS4")

The library is built from `amdsmi/fake_amdsmi.c`. As the real one does, it lists its devices when it is loaded: a
board that is divided later is listed as one device until `relist`.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from fakes import nvml_layout as layout
from fakes.nvml import FakeDriver, FakeGpu

NOT_FOUND = 31
MAX_PARTITIONS = 8
MI300X, MI250X, MI210, RADEON = 0x74A1, 0x7408, 0x740F, 0x744C
# A step of the counter in uJ (kEnergyCounterResolution in rocm_smi.cc).
COUNTER_STEP_UJ = 15.3
UNKNOWN = 0xFFFF


class Partition(ctypes.Structure):
    _fields_ = (
        ("mem_total_bytes", ctypes.c_uint64),
        ("mem_used_bytes", ctypes.c_uint64),
        ("pid_count", ctypes.c_int64),
        ("pids", ctypes.c_uint64 * layout.MAX_PIDS),
        ("user_count", ctypes.c_int64),
    )


class Board(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * layout.NAME_LENGTH),
        ("serial", ctypes.c_char * layout.NAME_LENGTH),
        ("product_name", ctypes.c_char * layout.NAME_LENGTH),
        ("bdf", ctypes.c_uint64),
        ("device_id", ctypes.c_uint64),
        ("hip_id", ctypes.c_uint64),
        ("segment_count", ctypes.c_int64),
        ("segments", layout.Segment * layout.MAX_SEGMENTS),
        ("counter_zero_ns", ctypes.c_int64),
        ("counter_base", ctypes.c_uint64),
        ("counter_step_uj", ctypes.c_double),
        ("averages_power", ctypes.c_int64),
        ("is_second_die", ctypes.c_int64),
        ("util_pct", ctypes.c_uint64),
        ("mem_util_pct", ctypes.c_uint64),
        ("edge_c", ctypes.c_int64),
        ("hotspot_c", ctypes.c_int64),
        ("sm_clock_mhz", ctypes.c_uint64),
        ("mem_clock_mhz", ctypes.c_uint64),
        ("power_limit", ctypes.c_uint64),
        ("power_limit_max", ctypes.c_uint64),
        ("counts_violations", ctypes.c_int64),
        ("throttle_since_ns", ctypes.c_int64),
        ("throttle_base_ns", ctypes.c_uint64 * 2),
        ("throttle_share", ctypes.c_double * 2),
        ("throttlers", ctypes.c_uint64),
        ("ecc_uncorrected", ctypes.c_uint64),
        ("compute_mode", ctypes.c_char * layout.NAME_LENGTH),
        ("memory_mode", ctypes.c_char * layout.NAME_LENGTH),
        ("partition_count", ctypes.c_int64),
        ("partitions", Partition * MAX_PARTITIONS),
    )


class Control(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("simulated_ns", ctypes.c_int64),
        ("utc_offset_ns", ctypes.c_int64),
        ("gpu_count", ctypes.c_int64),
        ("version", ctypes.c_uint32 * 4),
        ("build", ctypes.c_char * layout.NAME_LENGTH),
        ("rule_count", ctypes.c_int64),
        ("rules", layout.Rule * layout.MAX_RULES),
        ("gpus", Board * layout.MAX_GPUS),
    )


class FakeBoard(FakeGpu):
    """One board's script: power, energy, throttling and faults as of an NVIDIA GPU."""

    LOST = NOT_FOUND

    def count_more(self, energy_j: float) -> None:
        """Let the energy counter jump; a negative number resets it."""
        self._gpu.counter_base += round(energy_j * 1e6 / self._gpu.counter_step_uj)

    def set_partition(
        self,
        number: int = 0,
        pids: Sequence[int] | None = None,
        using: int | None = None,
        **values: int,
    ) -> None:
        """Set what a partition has, or an undivided board: its memory and processes, of which so many use it."""
        part = self._gpu.partitions[number]
        if pids is not None:
            part.pids[: len(pids)] = list(pids)
            part.pid_count = len(pids)
            part.user_count = len(pids) if using is None else using
        for name, value in values.items():
            setattr(part, name, value)

    def divide(self, count: int, compute_mode: str, memory_mode: str) -> None:
        """Divide the board; each partition has its share of the memory."""
        whole = self._gpu.partitions[0].mem_total_bytes
        self.set(compute_mode=compute_mode, memory_mode=memory_mode)
        for number in range(count):
            self.set_partition(number, mem_total_bytes=whole // count, mem_used_bytes=0)
        self.relist(count)

    def relist(self, count: int) -> None:
        """Set how many devices the library lists for the board."""
        self._gpu.partition_count = count


class FakeAmdsmi(FakeDriver):
    """A host with AMD boards, each an idle MI300X of 140 W.

    Args:
        folder: Folder of the control file; a test's tmp_path.
        gpus: How many boards, at most 16.
        simulated_utc_ns: UTC in ns at which a simulated time begins; None for the host's time.
    """

    NAME = "amdsmi"
    SONAME = "libamd_smi.so"
    CONTROL = Control
    GPU = FakeBoard

    def __init__(self, folder: Path, gpus: int = 1, simulated_utc_ns: int | None = None) -> None:
        super().__init__(folder, gpus, simulated_utc_ns)
        self.set_version(26, 1, 0)
        now_ns = self.clock.monotonic_ns()
        for gpu in self.gpus:
            gpu.set(
                name="AMD Instinct MI300X",
                serial=f"0x49C8D7C4A2D3B1{gpu.index:02X}",
                bdf=0x0C00 + 0x100 * gpu.index,
                device_id=MI300X,
                hip_id=gpu.index,
                counter_zero_ns=now_ns,
                counter_base=10**9,
                counter_step_uj=COUNTER_STEP_UJ,
                edge_c=UNKNOWN,
                hotspot_c=45,
                sm_clock_mhz=2100,
                mem_clock_mhz=1300,
                power_limit=750_000_000,
                power_limit_max=750_000_000,
                counts_violations=1,
                throttle_since_ns=now_ns,
                compute_mode="SPX",
                memory_mode="NPS1",
                partition_count=1,
            )
            gpu.set_partition(mem_total_bytes=192 << 30, mem_used_bytes=1 << 30)
            gpu.set_power(140.0, at_ns=now_ns - 3600 * 10**9)

    def set_version(self, *numbers: int) -> None:
        """Set the version of the library: 24 and 25 begin with the year."""
        self._control.version[: len(numbers)] = list(numbers)
        self._control.build = ".".join(map(str, numbers)).encode()
