"""MIG devices that are destroyed and created again while the sensors run.

Outcome: the board is sampled throughout, its new MIG devices are found within a minute, and one
that is gone is dropped without a fault.
"""

import pytest
from fakes.nvml import FakeNvml
from nvml_bench import Bench, is_reading, of

NOON_NS = 1_780_000_000 * 10**9
GIB = 1 << 30


@pytest.fixture
def simulated(tmp_path):
    fake = FakeNvml(tmp_path, simulated_utc_ns=NOON_NS)
    with fake.in_this_process():
        yield fake


def memory_of(messages):
    return of(messages, "reading")[-1]["fields"].get("mem_total_bytes")


def test_destroyed_mig_device_is_no_fault_and_one_in_its_place_is_read(simulated):
    gpu = simulated.gpus[0]
    gpu.split(3, 4)
    part = Bench(simulated, number=1)
    assert memory_of(part.run(30)) == 40 * GIB
    gpu.split(3, 2)
    assert memory_of(part.run(30)) == 20 * GIB
    assert len(of(part.messages, "device")) == 2
    gpu.unsplit()
    part.run(4)
    assert not is_reading(part.run(60))
    assert of(part.messages, "fault") == []
