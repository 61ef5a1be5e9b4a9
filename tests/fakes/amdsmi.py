"""A fake AMD SMI library whose boards are scripted as those of the fake NVML.

    fake = FakeAmdsmi(tmp_path, gpus=2)
    subprocess.Popen([...], env={**os.environ, **fake.env()})
    fake.gpus[0].set_power(300.0)
    fake.gpus[1].divide(8, "CPX", "NPS4")

The library is built from `amdsmi/fake_amdsmi.c`. As the real one does, it lists its devices when it is loaded: a
board that is divided later is listed as one device until `relist`.
"""

from collections.abc import Sequence
from pathlib import Path

from fakes.nvml import FakeDriver, FakeGpu

NOT_FOUND = 31
MI300X, MI250X, MI210, RADEON = 0x74A1, 0x7408, 0x740F, 0x744C
# A step of the counter in uJ (kEnergyCounterResolution in rocm_smi.cc).
COUNTER_STEP_UJ = 15.3
UNKNOWN = 0xFFFF


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
