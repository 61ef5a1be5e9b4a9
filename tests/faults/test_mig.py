"""MIG devices that are destroyed and created again while the sensors run.

Outcome: the board is sampled throughout; a new MIG device is found within a minute, one that is gone
is left alone, and one that is created in its place is read again with its own memory.
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


def slices(messages):
    names = {message["sensor"].name for message in of(messages, "slice")}
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
    assert slices(after[-20:]) == set()
    assert is_reading(after)
    gpu.split(1, 1, 1)
    assert slices(board.run(90)) == {0, 1, 2}
    assert of(board.messages, "fault") == of(board.messages, "restart") == []


def test_destroyed_mig_device_is_dropped_and_its_successor_is_read(simulated):
    gpu = simulated.gpus[0]
    gpu.split(3, 4)
    part = Bench(simulated, number=1)
    assert memory_of(part.run(30)) == 40 * GIB
    gpu.unsplit()
    (fault, *_) = of(part.run(60), "fault")
    assert fault["reaction"] == "quarantine"
    assert not is_reading(part.run(60))
    gpu.split(3, 2)
    assert part.reads_again()
    assert of(part.messages, "device")[-1]["device"]["slices"] == 2
    assert memory_of(part.run(30)) == 20 * GIB


def test_mig_device_in_a_reused_slot_is_a_new_device(simulated):
    gpu = simulated.gpus[0]
    gpu.split(3, 4)
    part = Bench(simulated, number=1)
    part.run(30)
    gpu.split(3, 4)  # between two samples: of the same sizes, but not the same devices
    assert of(part.run(20), "fault")
    assert part.reads_again()
    first, second = (message["device"]["uuid"] for message in of(part.messages, "device"))
    assert first != second


@pytest.mark.parametrize("rounds", [5])
def test_repeated_repartitioning_ends_no_thread(simulated, rounds):
    gpu = simulated.gpus[0]
    gpu.split(4, 3)
    benches = [Bench(simulated), Bench(simulated, number=0)]
    for number in range(rounds):
        gpu.unsplit()
        for bench in benches:
            bench.run(30)
        gpu.split(*((4, 3), (2, 2, 3), (7,))[number % 3])
        for bench in benches:
            bench.run(10)
    assert all(bench.reads_again() for bench in benches)
    assert not any(of(bench.messages, "restart") for bench in benches)
