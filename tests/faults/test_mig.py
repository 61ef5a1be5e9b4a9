"""MIG devices that are destroyed and created again while the sensors run.

Outcome: the board is sampled throughout, its new MIG devices are found within a minute, and one
that is gone is dropped without a fault.
"""

import pytest
from fakes.nvml import FakeNvml
from nvml_bench import Bench, is_reading, of

NOON_NS = 1_780_000_000 * 10**9
GIB = 1 << 30
INVALID_ARGUMENT = 2


@pytest.fixture
def simulated(tmp_path):
    fake = FakeNvml(tmp_path, simulated_utc_ns=NOON_NS)
    with fake.in_this_process():
        yield fake


def slices(messages):
    """The numbers of the MIG devices that the board reported last."""
    names = {sensor.name for sensor in of(messages, "slices")[-1]["sensors"]}
    return {int(name.removeprefix("gpu0.mig")) for name in names}


def memory_of(messages):
    return of(messages, "reading")[-1]["fields"].get("mem_total_bytes")


def test_gpu_detects_new_mig_devices_and_continues(simulated):
    board, gpu = Bench(simulated), simulated.gpus[0]
    assert slices(board.run(30)) == set()
    gpu.split(3, 4)
    found = board.run(90)
    assert slices(found) == {0, 1}
    assert is_reading(found)
    gpu.unsplit()
    after = board.run(150)
    assert slices(after) == set()
    assert is_reading(after)
    gpu.split(1, 1, 1)
    assert slices(board.run(90)) == {0, 1, 2}
    assert of(board.messages, "fault") == of(board.messages, "restart") == []


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


def test_repeated_repartitioning_ends_no_thread(simulated):
    gpu = simulated.gpus[0]
    gpu.split(4, 3)
    board = Bench(simulated)
    for number in range(5):
        gpu.unsplit()
        board.run(30)
        gpu.split(*((4, 3), (2, 2, 3), (7,))[number % 3])
        board.run(70)
        assert len(slices(board.messages)) == (2, 3, 1)[number % 3]
        part = Bench(simulated, number=0)
        assert part.reads_again()
    assert board.reads_again()
    assert of(board.messages, "fault") == of(board.messages, "restart") == []
