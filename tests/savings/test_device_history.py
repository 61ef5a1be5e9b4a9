"""Telemetry aggregated by hour."""

from costprobe.core.hours import MINUTE_NS, DeviceHistory, Interval
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import Device
from fakes.past import MONDAY

S = 10**9
START_NS = MONDAY * HOUR_NS
DEVICE = Device("gpu0", "gpu", "uuid", "NVIDIA A100-SXM4-40GB")


def history(hours=2, probe_ends_ns=()):
    return DeviceHistory(DEVICE, START_NS + hours * HOUR_NS, probe_ends_ns)


def add_telemetry(past, times_ns, length_s=10, **fields):
    """Add intervals with these end times and one value per field and interval."""
    for index, end_ns in enumerate(times_ns):
        values = {name: value[index] for name, value in fields.items()}
        past.add(Interval(end_ns - length_s * S, end_ns, **values))


def minutes(count, first=0):
    """Return one end time in the middle of each minute."""
    return [START_NS + (first + i) * MINUTE_NS + 30 * S for i in range(count)]


def test_hour_is_covered_with_half_of_its_minutes():
    past = history()
    add_telemetry(past, minutes(30), util_pct=[40.0] * 30)
    add_telemetry(past, minutes(29, first=60), util_pct=[100.0] * 29)
    assert set(past.known_hours) == {MONDAY}
    assert (past.hours[MONDAY].util_pct, past.span_hours) == (40.0, 2)


def test_probing_does_not_count_as_work():
    ends_ns = START_NS + 10 * MINUTE_NS + 30 * S
    past = history(1, [ends_ns])
    # Intervals of 10 s: the first ends one minute before, the last starts 15 s after.
    times = [ends_ns - 60 * S, ends_ns - 59 * S, ends_ns, ends_ns + 24 * S, ends_ns + 25 * S]
    add_telemetry(
        past,
        times,
        util_pct=[1.0, 100.0, 100.0, 100.0, 3.0],
        mem_used_bytes_max=[1.0, 9.0, 9.0, 9.0, 2.0],
        power_w=[50.0, 400.0, 400.0, 400.0, 70.0],
    )
    add_telemetry(past, minutes(40, first=20), util_pct=[2.0] * 40)
    hour = past.hours[MONDAY]
    assert (hour.util_s, hour.util_pct) == (420.0, 2.0)
    assert (hour.energy_j, hour.power_s) == (1200.0, 20.0)
    assert past.mem_used_bytes_max == 2.0


def test_load_is_known_by_minute():
    past = history(1)
    # 10 s at 60 % in the first minute, and 50 s at 30 % that begin 10 s before the third.
    add_telemetry(past, [START_NS + 20 * S], util_pct=[60.0])
    add_telemetry(past, [START_NS + 160 * S], 50, util_pct=[30.0])
    assert list(past.hours[MONDAY].busy_s_by_minute[:4]) == [6.0, 3.0, 12.0, 0.0]
