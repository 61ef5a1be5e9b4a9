"""Messages on the wire between daemon and sensor child."""

from costprobe.adapters.sensors.child.energy import KEPT
from costprobe.adapters.sensors.messages import (
    LINE_BYTES_MAX,
    EnergyReading,
    Power,
    Sample,
    Shares,
    WatchedReadings,
    encode,
)


def test_longest_message_of_a_watched_device_is_no_overlong_line():
    full = WatchedReadings(KEPT)
    t_ns = 10**18
    numbers = [1e6 / 3] * 13
    for _ in range(KEPT):
        full.samples.append(Sample(t_ns, *numbers, pids=tuple(range(4_000_000, 4_000_100))))
        full.counter.append(EnergyReading(t_ns, 1e12 / 3))
        full.shares.append(Shares(t_ns, t_ns, [(4_000_000, 100 / 3)] * 100))
    full.powers.extend([Power(t_ns, 1e3 / 3)] * 1000)
    full.buffered.extend([Power(t_ns, 1e3 / 3)] * 1000)
    assert len(encode(full.message("gpu15.mig6", is_first=True))) < LINE_BYTES_MAX
