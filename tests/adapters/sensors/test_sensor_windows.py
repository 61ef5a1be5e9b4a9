"""Energy of a window of five seconds, against the truth of the script."""

import time

import pytest
from costprobe.adapters.sensors.messages import Absent
from costprobe.core.clock import SystemClock
from costprobe.devices.use import DeviceWindows

S = 10**9
NOT_SUPPORTED = 3


class Supervised:
    """A sensor child in the place of its supervisor."""

    every_s = 1.0

    def __init__(self, child):
        self._child = child

    def stream_to(self, consumer):
        """Hand over what has come, before each question."""
        self.hand_over = lambda: [consumer(m) for m in self._child.taken("samples")]

    def is_available(self, _name):
        return False

    def watch(self, name, until_ns):
        self._child.send({"cmd": "watch", "device": name, "until_ns": until_ns})
        return True

    def mark(self, name):
        self._child.send({"cmd": "mark", "device": name})
        return True


@pytest.fixture
def window(start_child, fake_nvml):
    """A window of 5 s on three GPUs: with a counter, without, and with one that is reset."""
    fake = fake_nvml(gpus=3)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED, gpu=1)
    child = start_child(fake.env(), every_s=1.0, aggregate_s=10.0, cpu=True)
    child.wait_for("handshake")
    sensor = Supervised(child)
    windows = DeviceWindows(sensor, SystemClock())
    steady_start_ns = time.monotonic_ns()
    for gpu, watts in zip(fake.gpus, (310.0, 250.0, 170.0), strict=True):
        gpu.set_power(watts, at_ns=steady_start_ns)
        gpu.set(util_pct=99)
        gpu.set_processes([4321, 4322], busy_pids=[4321])
    fake.gpus[0].throttle(power_share=0.2)
    time.sleep(0.2)
    names = ("gpu0", "gpu1", "gpu2", "cpu")
    for name in names:
        windows.watch(name, steady_start_ns + 60 * S)
        windows.mark(name)
    start_ns = time.monotonic_ns()
    time.sleep(2.5)
    fake.gpus[2].reset_counter()
    time.sleep(2.55)
    end_ns = start_ns + 5 * S
    for name in names:
        windows.mark(name)
    # Until a sample of each is after the window.
    time.sleep(0.1)
    steady_end_ns = time.monotonic_ns()
    for name in names:
        child.wait_for("samples", device=name, since=len(child.messages))
        windows.watch(name, 0)
    sensor.hand_over()
    return fake, windows, (start_ns, end_ns, steady_start_ns, steady_end_ns)


def test_energy_of_a_window_by_each_method(window):
    fake, windows, times_ns = window
    start_ns, end_ns, *_ = times_ns
    truth_j = [gpu.energy_j(start_ns, end_ns) for gpu in fake.gpus]

    counter = windows.energy("gpu0", *times_ns)
    assert counter.method == "counter"
    assert counter.energy_j == pytest.approx(truth_j[0], rel=0.02)
    assert 0.05 < counter.rel_err < 0.08

    poll = windows.energy("gpu1", *times_ns)
    assert poll.method == "poll"
    assert poll.energy_j == pytest.approx(truth_j[1], rel=0.001)
    assert 0.05 < poll.rel_err < 0.3

    # The counter of gpu2 was reset: power at one sample a second stands in.
    fallback = windows.energy("gpu2", *times_ns)
    assert fallback.method == "poll"
    assert fallback.energy_j == pytest.approx(truth_j[2], rel=0.001)

    cpu = windows.energy("cpu", *times_ns)
    assert cpu.method in ("rapl", "modelled")
    assert cpu.energy_j > 0

    short = windows.energy("gpu0", start_ns, end_ns - S, *times_ns[2:])
    assert short == Absent("the window lasted 4.00 s, and needs 5")

    # 4321 holds a context and works, 4322 holds one and idles; 1 is unknown to the driver.
    for own_pids, contended in (([4321], False), ([4322], True), ([1], None)):
        activity = windows.activity("gpu0", start_ns, end_ns, own_pids)
        assert activity.contended is contended
        assert activity.throttled_pct == pytest.approx(20, rel=0.05)
        assert activity.throttled_power_pct == activity.throttled_pct
        assert activity.throttled_thermal_pct == 0
        assert activity.sm_clock_mhz == 1980
        assert activity.temp_max_c == 35
        assert activity.mem_used_pct == pytest.approx(100 / 80)
        assert activity.ecc_uncorrected == 0

    # The processors report neither clock nor throttling; their temperature depends on the host.
    activity = windows.activity("cpu", start_ns, end_ns, [])
    unknown = ("contended", "throttled_pct", "throttled_thermal_pct", "sm_clock_mhz")
    assert [getattr(activity, name) for name in (*unknown, "ecc_uncorrected")] == [None] * 5
    assert 0 < activity.mem_used_pct < 100

    # Polling ends with the watch; the counter was read at the window's edges and for rows.
    polls = fake.calls("nvmlDeviceGetFieldValues", gpu=1)
    time.sleep(1.0)
    assert fake.calls("nvmlDeviceGetFieldValues", gpu=1) <= polls + 2
