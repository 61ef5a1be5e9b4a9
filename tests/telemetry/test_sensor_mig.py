"""A board that is divided into MIG devices, through the real child."""

import time

import pytest

S = 10**9


@pytest.fixture
def divided(fake_nvml, start_child):
    fake = fake_nvml(gpus=2)
    fake.gpus[1].split(3, 2)
    child = start_child(fake.env(), selftest_s=0.0)
    hello = child.wait_for("hello")
    return fake, child, hello


def test_mig_devices_are_found_beside_their_board(divided):
    _, child, hello = divided
    for name in ("gpu1.mig0", "gpu1.mig1"):
        if name not in [device["name"] for device in hello["devices"]]:
            child.wait_for("reading", device=name)
    seen = {device["name"]: device for device in hello["devices"]}
    seen |= {m["device"]["name"]: m["device"] for m in child.messages if m["type"] == "device"}
    assert set(seen) == {"gpu0", "gpu1", "gpu1.mig0", "gpu1.mig1"}
    mig = seen["gpu1.mig0"]
    assert (mig["kind"], mig["parent"], mig["index"]) == ("mig", "gpu1", 1)
    assert (mig["slices"], mig["slices_of"]) == (3, 7)
    assert mig["uuid"].startswith("MIG-")
    assert mig["model"] == "NVIDIA Fake 80GB MIG 3g.30gb"
    assert mig["memory_bytes"] == 30 << 30


def test_a_mig_device_shows_its_own_memory_and_processes_and_none_of_its_boards_energy(divided):
    fake, child, _ = divided
    fake.gpus[1].set_mig(1, pids=[77, 78], mem_used_bytes=5 << 30)
    child.wait_for("reading", device="gpu1.mig1")
    since = len(child.messages)
    child.wait_for("reading", since=since, device="gpu1.mig1")
    reading = child.wait_for("reading", since=since + 5, device="gpu1.mig1")["fields"]
    assert (reading["mem_used_bytes"], reading["processes"]) == (5 << 30, 2)
    assert reading["mem_total_bytes"] == 20 << 30
    assert reading["sm_clock_mhz"] == 1980
    assert reading.keys().isdisjoint({"power_w", "energy_j", "energy_method", "util_pct"})
    board = child.wait_for("reading", since=since, device="gpu1")["fields"]
    assert board["energy_j"] > 0
    assert "util_pct" not in board  # the driver does not tell it of a divided board


def test_a_windows_energy_is_the_boards_and_says_so(divided):
    fake, child, _ = divided
    child.wait_for("reading", device="gpu1.mig0")
    steady_start_ns = time.monotonic_ns()
    fake.gpus[1].set_power(420.0, at_ns=steady_start_ns)
    time.sleep(0.5)
    start_ns = time.monotonic_ns()
    child.send({"cmd": "mark", "device": "gpu1.mig0"})
    time.sleep(5.05)
    end_ns = time.monotonic_ns()
    child.send({"cmd": "mark", "device": "gpu1.mig0"})
    time.sleep(0.4)
    times = {"start_ns": start_ns, "end_ns": end_ns}
    steady = {"steady_start_ns": steady_start_ns, "steady_end_ns": time.monotonic_ns()}
    child.send({"cmd": "energy", "id": 1, "device": "gpu1.mig0", **times, **steady})
    answer = child.wait_for("energy", id=1)
    assert (answer["method"], answer["scope"]) == ("counter", "parent")
    assert answer["energy_j"] == pytest.approx(fake.gpus[1].energy_j(start_ns, end_ns), rel=0.02)


def test_an_undivided_board_asks_for_no_parts_again_and_again(fake_nvml, start_child):
    fake = fake_nvml(gpus=1)
    child = start_child(fake.env())
    for _ in range(3):
        child.wait_for("reading", since=len(child.messages), device="gpu0")
    assert fake.calls("nvmlDeviceGetMigMode") == 1
    assert fake.calls("nvmlDeviceGetMigDeviceHandleByIndex") == 0
