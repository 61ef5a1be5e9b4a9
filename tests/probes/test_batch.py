"""The batch search, on a scripted device and allocator."""

import pytest
from costprobe_probes.batch import BatchPoint, BatchSearch, SearchLimits, predicted_peak_bytes

GIB = 1 << 30
BASE = GIB // 2
PER_ITEM = GIB // 8


class Scripted:
    """A device with free memory besides that of this process, and half of its throughput at batch 8."""

    def __init__(self, free_bytes=64 * GIB):
        self.free_bytes = free_bytes
        self.tried = []

    def measure(self, batch):
        peak = BASE + PER_ITEM * batch
        assert peak <= self.headroom(), "a neighbour's memory was taken"
        self.tried.append(batch)
        throughput = 1000 * batch / (batch + 8)
        return BatchPoint(batch, batch / throughput * 1000, throughput, peak)

    def headroom(self):
        return BASE + self.free_bytes


def run(device, over=lambda: False, measure=None, **limits):
    search = BatchSearch(
        measure or device.measure, device.headroom, over, SearchLimits(BASE, **limits)
    )
    return search.run()


def test_search_doubles_until_a_gain_under_five_percent_a_bound_or_the_memory_ends_it():
    for limits, best, curve in (
        # From 128 (941 a second) to 256 (970) the gain is 3 %; 96 (923) is not within 5 % of those
        # 970, but 112 (933) is, at a lower latency.
        ({}, 112, [1, 2, 4, 8, 16, 32, 64, 96, 112, 128, 256]),
        # Batch 8 takes 16 ms and batch 16 takes 24 ms; between them 12 takes just 20 ms.
        ({"latency_bound_s": 0.02}, 12, [1, 2, 4, 8, 12, 14, 16]),
        ({"memory_cap_bytes": BASE + 5 * PER_ITEM}, 5, [1, 2, 4, 5]),
    ):
        found, points = run(Scripted(), **limits)
        assert (found, [point.batch for point in points]) == (best, curve), limits
    device = Scripted()
    assert run(device, over=lambda: len(device.tried) >= 3)[0] == 4
    assert device.tried == [1, 2, 4]


def test_peak_is_extrapolated_from_the_steepest_segment():
    points = [BatchPoint(1, 1, 1, 105), BatchPoint(2, 1, 1, 145), BatchPoint(4, 1, 1, 150)]
    assert predicted_peak_bytes(100, points, 8) == 150 + 4 * 40
    assert predicted_peak_bytes(100, [BatchPoint(1, 1, 1, 90)], 2) == 90


def test_batch_that_may_not_fit_is_never_tried():
    for free_gib in (1, 2, 3, 5):
        device = Scripted(free_bytes=free_gib * GIB)
        assert BASE + PER_ITEM * run(device)[0] <= device.headroom(), free_gib


def test_free_memory_is_read_before_each_step():
    device = Scripted()

    def measure(batch):
        point = device.measure(batch)
        if batch == 8:
            # Another process allocates memory during the search.
            device.free_bytes = GIB
        return point

    run(device, measure=measure)
    # The remaining GiB is too small for 16, 12 and 10.
    assert device.tried == [1, 2, 4, 8]


def test_out_of_memory_ends_the_search_with_the_best_so_far():
    device = Scripted()
    best, curve = run(device, measure=lambda batch: device.measure(batch) if batch < 6 else None)
    assert (best, [point.batch for point in curve]) == (5, [1, 2, 4, 5])
    with pytest.raises(MemoryError, match="one item"):
        run(device, measure=lambda _: None)
