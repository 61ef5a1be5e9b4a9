"""Whose work a probe waits for."""

import pytest

from agent.probing.neighbour import Load, is_busy


@pytest.mark.parametrize(
    ("load", "above", "busy"),
    [
        (Load(0.0, has_processes=False), 0.1, False),
        (Load(80.0, has_processes=True), 0.1, True),
        (Load(10.0, has_processes=True), 0.1, False),
        (Load(10.1, has_processes=True), 0.1, True),
        # A server that only holds its memory: it may stay for months.
        (Load(0.0, has_processes=True), 0.1, False),
        # A MIG device: the driver tells its processes alone.
        (Load(None, has_processes=True), 0.1, True),
        (Load(None, has_processes=False), 0.1, False),
        (Load(None, has_processes=None), 0.1, False),
        (Load(40.0, has_processes=None), 0.5, False),
        (Load(60.0, has_processes=None), 0.5, True),
    ],
)
def test_a_device_is_busy_as_far_as_it_can_be_told(load, above, busy):
    assert is_busy(load, above) is busy
