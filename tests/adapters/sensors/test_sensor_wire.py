from dataclasses import asdict

import pytest
from costprobe.adapters.sensors.child.energy import KEPT
from costprobe.adapters.sensors.messages import (
    LINE_BYTES_MAX,
    EnergyReading,
    LineSplitter,
    Power,
    Sample,
    Shares,
    WatchedReadings,
    decode,
    encode,
    parse_settings,
    settings_message,
)
from costprobe.core.records import Device
from fakes.sensing import sensor_settings
from hypothesis import given
from hypothesis import strategies as st


def test_settings_round_trip():
    settings = sensor_settings(every_s=0.5, cpu=True, cpu_idle_w=3.0, sysfs_root="/host")
    quarantined = {"gpu3": 60.0, "gpu0": 1.5}
    line = encode(settings_message(settings, quarantined))
    assert parse_settings(decode(line)) == (settings, quarantined)


def test_unknown_settings_of_another_version_are_ignored():
    settings = sensor_settings(gpus=False)
    message = {**settings_message(settings, {}), "colour": "green"}
    assert parse_settings(message) == (settings, {})


@pytest.mark.parametrize(
    "device",
    [
        Device("gpu0", "gpu", "GPU-1", "Board", 80 << 30),
        Device("cpu", "cpu", "abc", 'A "CPU" \u00e9', None),
    ],
)
def test_devices_round_trip(device):
    assert Device(**decode(encode(asdict(device)))) == device


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


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[1,2]", b'"text"', b"\xff\xfe", b'{"a":'])
def test_line_that_is_not_an_object_is_an_error(line):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own words differ by version
        decode(line)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_complete_for_any_split_of_the_stream(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    splitter, got = LineSplitter(max_bytes=20), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got == lines
    assert splitter.overlong_lines == 0


@given(st.data())
def test_overlong_line_is_dropped_and_counted_once_for_any_split_of_the_stream(data):
    stream = b"first\n" + b"x" * 50 + b"\nlast\n"
    splitter, got = LineSplitter(max_bytes=20), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got == [b"first", b"last"]
    assert splitter.overlong_lines == 1
