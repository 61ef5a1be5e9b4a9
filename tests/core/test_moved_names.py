"""Rows before a move are read under the names of that time."""

from costprobe.core.moved_names import MovedNames
from costprobe.core.records import Point

# At 100 board 0 was gone and the others moved down; at 200 another board came as gpu0.
NAMES = MovedNames([(100, {"gpu0": "A", "gpu1": "gpu0", "gpu2": "gpu1"}), (200, {"gpu0": "B"})])


def test_rows_get_the_name_of_today():
    for device, time_ns, name in [
        ("gpu1", 50, "B"),
        ("gpu2", 50, "gpu1"),
        ("gpu0+gpu2", 50, "A+gpu1"),
        ("gpu0.mig1", 150, "B.mig1"),
        ("gpu0", 200, "gpu0"),
        ("gpu10", 50, "gpu10"),
    ]:
        row = Point("probe", {"device": device}, {}, time_ns)
        assert NAMES.present(row).tags["device"] == name
    assert NAMES.present(Point("cost", {}, {}, 50)).tags == {}


def test_places_of_a_device_follow_its_board():
    assert NAMES.places("gpu1", 0, 300) == [
        ("gpu2", 0, 100),
        ("gpu1", 100, 200),
        ("gpu1", 200, 300),
    ]
    assert NAMES.places("gpu0", 0, 300) == [("gpu0", 200, 300)]
    assert NAMES.places("B", 90, 300) == [("gpu1", 90, 100), ("gpu0", 100, 200), ("B", 200, 300)]
    assert NAMES.places("cpu", 150, 180) == [("cpu", 150, 180)]
