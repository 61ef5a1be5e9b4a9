"""Messages on the wire between daemon and sensor child."""

import pytest
from costprobe.adapters.sensors.child.energy import KEPT
from costprobe.adapters.sensors.messages import (
    LINE_BYTES_MAX,
    EnergyReading,
    Power,
    Sample,
    Shares,
    WatchedReadings,
    decode,
    encode,
)


def test_readings_of_a_watched_device_round_trip():
    readings, received = WatchedReadings(), WatchedReadings()
    readings.samples.append(Sample(1, 300.0, pids=(7, 8), is_quick=True))
    readings.counter.append(EnergyReading(2, 5.5, "rapl"))
    readings.powers.append(Power(3, 290.0))
    readings.buffered.append(Power(4, 310.0))
    readings.shares.append(Shares(1, 5, [(7, 99.0)]))
    readings.edge_ns, readings.idle_power_w, readings.suspect_ns = 9, 60.0, [2]
    for is_first in (True, False):
        received.add(decode(encode(readings.message("gpu0", is_first=is_first))))
    (sample, _), (counter, _) = received.samples, received.counter
    assert (sample.power_w, sample.pids, sample.is_quick) == (300.0, [7, 8], True)
    assert counter == EnergyReading(2, 5.5, "rapl")
    assert received.powers[0] == (3, 290.0)
    assert received.shares[0] == Shares(1, 5, [[7, 99.0]])
    assert (received.edge_ns, received.idle_power_w, received.suspect_ns) == (9, 60.0, [2])


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


def test_line_that_is_not_an_object_is_an_error():
    for line in (b"", b"nonsense", b"[1,2]", b'"text"', b"\xff\xfe", b'{"a":'):
        with pytest.raises(ValueError):  # noqa: PT011 - json's own words differ by version
            decode(line)
