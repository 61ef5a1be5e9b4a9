import json
from dataclasses import asdict

import pytest
from costprobe.adapters.sensors.messages import (
    UNKNOWN,
    Activity,
    LineSplitter,
    Quarantined,
    activity_message,
    decode,
    encode,
    parse_activity,
    parse_command,
    parse_settings,
    settings_message,
)
from costprobe.core.records import Device
from fakes.sensing import sensor_settings
from hypothesis import given
from hypothesis import strategies as st


def test_settings_round_trip():
    settings = sensor_settings(every_s=0.5, cpu=True, cpu_idle_w=3.0, sysfs_root="/host")
    quarantined = (Quarantined("gpu3", 60.0), Quarantined("gpu0", 1.5))
    line = encode(settings_message(settings, quarantined))
    assert parse_settings(decode(line)) == (settings, quarantined)


def test_unknown_settings_of_another_version_are_ignored():
    settings = sensor_settings(gpus=False)
    message = {**settings_message(settings, ()), "colour": "green"}
    assert parse_settings(message) == (settings, ())


@pytest.mark.parametrize(
    "device",
    [
        Device("gpu0", "gpu", "GPU-1", "Board", 80 << 30),
        Device("cpu", "cpu", "abc", 'A "CPU" \u00e9', None),
    ],
)
def test_devices_round_trip(device):
    assert Device(**decode(encode(asdict(device)))) == device


@pytest.mark.parametrize(
    "activity", [UNKNOWN, Activity(True, 13.0, 2.0, 11.0, 1815.0, 2619.0, 500.0, 87.0, 62.5, 3)]
)
def test_activity_round_trips(activity):
    assert parse_activity(decode(encode(activity_message(4, activity)))) == activity


def test_unknown_conditions_of_another_version_are_ignored():
    message = {"type": "activity", "id": 1, "contended": True, "sm_clock_mhz": 1980.0, "fan_pct": 3}
    assert parse_activity(message) == Activity(contended=True, sm_clock_mhz=1980.0)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[1,2]", b'"text"', b"\xff\xfe", b'{"a":'])
def test_line_that_is_not_an_object_is_an_error(line):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own words differ by version
        decode(line)


@pytest.mark.parametrize(
    "command",
    [
        {"cmd": "stop"},
        {"cmd": "mark", "device": "gpu0"},
        {
            "cmd": "energy",
            "id": 1,
            "device": "gpu0",
            "start_ns": 1,
            "end_ns": 2,
            "steady_start_ns": 0,
            "steady_end_ns": 3,
        },
        {"cmd": "activity", "id": 1, "device": "gpu0", "start_ns": 1, "end_ns": 2, "own_pids": []},
    ],
)
def test_commands_are_read_only_when_complete(command):
    assert parse_command(json.dumps(command).encode()) == command
    for key in command:
        rest = {name: value for name, value in command.items() if name != key}
        with pytest.raises(ValueError, match="with its keys"):
            parse_command(json.dumps(rest).encode())


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
