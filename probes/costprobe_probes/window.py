"""The steady-state window of a probe, and the readings of the sensors at both of its edges.

Load starts RISE_S before the window, so that power has risen when the window begins, and continues
after it until the sensor child has read its counters. Both readings are therefore taken under
constant load, and the energy does not depend on how fast power falls.
"""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom
from threading import Event
from typing import NamedTuple

# Time for power to rise before the window begins, in s.
RISE_S = 0.5
# Time from the request to read a counter until it has been read, in s: a pipe, a thread, a driver
# call of some ms, and the 0.1 s by which a counter may lag.
READ_S = 0.3
# Shortest window in s whose energy the sensors can resolve.
ENERGY_WINDOW_MIN_S = 5.0
# Longest period in s of a power sensor.
SENSOR_PERIOD_S = 0.1


class ProbeWindow(NamedTuple):
    """Instants of a window; all times are CLOCK_MONOTONIC ns.

    Attributes:
        steady_start_ns: Start of constant load.
        start_ns: Start of the window.
        end_ns: End of the window.
        steady_end_ns: End of constant load.
    """

    steady_start_ns: int
    start_ns: int
    end_ns: int
    steady_end_ns: int


class WindowSettings(NamedTuple):
    """Length of a window, and its connection to the sensors.

    Attributes:
        window_s: Shortest length of the window in seconds.
        tail_s: Longest time in seconds that load continues after the window.
        marked: Set once the sensors have been requested to read the end of the window.
        on_edge: Called with "window_start" and "window_end" and their instants, under load.
        phase_s: Delay before the load.
    """

    window_s: float
    tail_s: float
    marked: Event
    on_edge: Callable[[str, int], None]
    phase_s: float = 0.0


def random_phase_s() -> float:
    """Return a random part of the sensor's period.

    Power sensors that see a part of their period see other parts of the passes in each run, so that
    the error varies between runs instead of being the same in all (Yang, Adamek and Armour,
    "Part-time Power Measurements", 2023).
    """
    # An operator's model may seed the generator of the module `random`.
    return SystemRandom().uniform(0.0, SENSOR_PERIOD_S)
