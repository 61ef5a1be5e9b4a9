"""Energy of a window of five seconds, against the truth of the script."""

import time

import pytest

S = 10**9
NOT_SUPPORTED = 3


def energy_of(child, identity, device, times_ns):
    keys = ("start_ns", "end_ns", "steady_start_ns", "steady_end_ns")
    times = dict(zip(keys, times_ns, strict=True))
    child.send({"cmd": "energy", "id": identity, "device": device, **times})
    return child.wait_for("energy", id=identity)


def window_of(times_ns):
    return {"start_ns": times_ns[0], "end_ns": times_ns[1]}


@pytest.fixture
def window(start_child, fake_nvml):
    """A window of 5 s on three GPUs: with a counter, without, and with one that is reset."""
    fake = fake_nvml(gpus=3)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED, gpu=1)
    child = start_child(fake.env(), every_s=1.0, aggregate_s=10.0, cpu=True)
    child.wait_for("handshake")
    steady_start_ns = time.monotonic_ns()
    for gpu, watts in zip(fake.gpus, (310.0, 250.0, 170.0), strict=True):
        gpu.set_power(watts, at_ns=steady_start_ns)
        gpu.set(util_pct=99)
        gpu.set_processes([4321, 4322], busy_pids=[4321])
    fake.gpus[0].throttle(power_share=0.2)
    time.sleep(0.2)
    names = ("gpu0", "gpu1", "gpu2", "cpu")
    for name in names:
        child.send({"cmd": "watch", "device": name, "until_ns": steady_start_ns + 60 * S})
        child.send({"cmd": "mark", "device": name})
    start_ns = time.monotonic_ns()
    time.sleep(2.5)
    fake.gpus[2].reset_counter()
    time.sleep(2.55)
    end_ns = start_ns + 5 * S
    for name in names:
        child.send({"cmd": "mark", "device": name})
    time.sleep(0.1)
    return fake, child, (start_ns, end_ns, steady_start_ns, time.monotonic_ns())


def test_energy_of_a_window_by_each_method(window):
    fake, child, times_ns = window
    start_ns, end_ns, *_ = times_ns
    truth_j = [gpu.energy_j(start_ns, end_ns) for gpu in fake.gpus]

    counter = energy_of(child, 1, "gpu0", times_ns)
    assert counter["method"] == "counter"
    assert counter["energy_j"] == pytest.approx(truth_j[0], rel=0.02)
    assert 0.05 < counter["rel_err"] < 0.08

    poll = energy_of(child, 2, "gpu1", times_ns)
    assert poll["method"] == "poll"
    assert poll["energy_j"] == pytest.approx(truth_j[1], rel=0.001)
    assert 0.05 < poll["rel_err"] < 0.3

    # The counter of gpu2 was reset: power at one sample a second stands in.
    fallback = energy_of(child, 3, "gpu2", times_ns)
    assert fallback["method"] == "poll"
    assert fallback["energy_j"] == pytest.approx(truth_j[2], rel=0.001)

    cpu = energy_of(child, 4, "cpu", times_ns)
    assert cpu["method"] in ("rapl", "modelled")
    assert cpu["energy_j"] > 0

    assert energy_of(child, 5, "gpu0", (start_ns, end_ns - S, *times_ns[2:])) == {
        "type": "energy",
        "id": 5,
        "absent": "the window lasted 4.00 s, and needs 5",
    }
    assert energy_of(child, 6, "gpu9", times_ns)["absent"] == "no such device"

    # 4321 holds a context and works, 4322 holds one and idles; 1 is unknown to the driver.
    for identity, own_pids, contended in ((7, [4321], False), (8, [4322], True), (9, [1], None)):
        question = {"device": "gpu0", "id": identity, **window_of(times_ns)}
        child.send({"cmd": "activity", "own_pids": own_pids, **question})
        activity = child.wait_for("activity", id=identity)
        assert activity["contended"] is contended
        assert activity["throttled_pct"] == pytest.approx(20, rel=0.05)
        assert activity["throttled_power_pct"] == activity["throttled_pct"]
        assert activity["throttled_thermal_pct"] == 0
        assert activity["sm_clock_mhz"] == 1980
        assert activity["temp_max_c"] == 35
        assert activity["mem_used_pct"] == pytest.approx(100 / 80)
        assert activity["ecc_uncorrected"] == 0

    # The processors report neither clock nor throttling; their temperature depends on the host.
    child.send(
        {"cmd": "activity", "device": "cpu", "id": 10, "own_pids": [], **window_of(times_ns)}
    )
    activity = child.wait_for("activity", id=10)
    unknown = ("contended", "throttled_pct", "throttled_thermal_pct", "sm_clock_mhz")
    assert [activity[name] for name in (*unknown, "ecc_uncorrected")] == [None] * 5
    assert 0 < activity["mem_used_pct"] < 100

    # Polling ends with the request; the counter was read at the window's edges and for rows.
    assert fake.calls("nvmlDeviceGetTotalEnergyConsumption", gpu=0) <= 5
    polls = fake.calls("nvmlDeviceGetFieldValues", gpu=1)
    time.sleep(1.0)
    assert fake.calls("nvmlDeviceGetFieldValues", gpu=1) <= polls + 2
