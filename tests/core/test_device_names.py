"""The order of names for people."""

from costprobe.core.records import natural


def test_numbers_in_names_sort_by_size():
    ordered = [
        "cpu",
        "gpu",
        "gpu2",
        "gpu2.mig1",
        "gpu10",
        "node2-gpu1",
        "node10-gpu0",
        "x" + "9" * 5000,
    ]
    assert sorted(sorted(ordered), key=natural) == ordered
    assert sorted(["gpu01", "gpu1", "gpu001"], key=natural) == ["gpu001", "gpu01", "gpu1"]


def test_first_name_decides_before_the_second():
    pairs = [("node2", "gpu10"), ("node10", "gpu2"), ("node10", "gpu11")]
    assert sorted(sorted(pairs), key=lambda pair: natural(*pair)) == pairs
