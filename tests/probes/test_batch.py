"""The batch search, on a scripted device and allocator."""

import pytest
from costprobe_probes.batch import (
    BatchPoint,
    BatchSearch,
    SearchLimits,
    predicted_peak_bytes,
)

GIB = 1 << 30
BASE = GIB // 2
PER_ITEM = GIB // 8


class Scripted:
    """A device with saturating throughput and an allocator that tracks its peak.

    Args:
        free_bytes: Free memory besides that of this process, less the reserve.
        saturation: Batch at which throughput reaches half of its limit.
    """

    def __init__(self, free_bytes=64 * GIB, saturation=8):
        self.free_bytes = free_bytes
        self.saturation = saturation
        self.tried = []
        self.held = BASE

    def measure(self, batch):
        peak = BASE + PER_ITEM * batch
        assert peak <= self.headroom(), "a neighbour's memory was taken"
        self.tried.append(batch)
        throughput = 1000 * batch / (batch + self.saturation)
        return BatchPoint(batch, batch / throughput * 1000, throughput, peak)

    def headroom(self):
        return self.held + self.free_bytes


def run(device, **options):
    over = options.pop("over", lambda: False)
    limits = SearchLimits(BASE, **options)
    return BatchSearch(device.measure, device.headroom, over, limits).run()


def test_doubling_stops_at_a_gain_under_five_percent():
    device = Scripted()
    best, curve = run(device)
    # From 128 (941 a second) to 256 (970) the gain is 3 %; 96 (923) is not within 5 % of those
    # 970, but 112 (933) is, at a lower latency.
    assert best == 112
    assert [point.batch for point in curve] == [1, 2, 4, 8, 16, 32, 64, 96, 112, 128, 256]


def test_batch_above_the_latency_bound_is_not_chosen():
    device = Scripted()
    best, _ = run(device, latency_bound_s=0.02)
    # Batch 8 takes 16 ms and batch 16 takes 24 ms; between them 12 takes just 20 ms.
    assert best == 12


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

    BatchSearch(measure, device.headroom, lambda: False, SearchLimits(BASE)).run()
    # The remaining GiB is too small for 16, 12 and 10.
    assert device.tried == [1, 2, 4, 8]


def test_memory_cap_bounds_the_peak():
    device = Scripted()
    best, curve = run(device, memory_cap_bytes=BASE + 5 * PER_ITEM)
    assert best == 5
    assert max(point.peak_memory_bytes for point in curve) <= BASE + 5 * PER_ITEM


def search_of(measure):
    return BatchSearch(measure, lambda: 64 * GIB, lambda: False, SearchLimits(BASE)).run()


def test_out_of_memory_ends_the_search_with_the_best_so_far():
    device = Scripted()
    best, curve = search_of(lambda batch: device.measure(batch) if batch < 6 else None)
    assert best == 5
    assert [point.batch for point in curve] == [1, 2, 4, 5]


def test_single_item_that_does_not_fit_is_out_of_memory():
    with pytest.raises(MemoryError, match="one item"):
        search_of(lambda _: None)


def test_search_past_its_time_limit_starts_no_step():
    device = Scripted()
    best, _ = run(device, over=lambda: len(device.tried) >= 3)
    assert device.tried == [1, 2, 4]
    assert best == 4
