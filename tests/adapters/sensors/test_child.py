"""The life cycle of the sensor child, with the real pynvml and the fake library."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from costprobe.adapters.sensors.child.cpu import CpuSensor, cpu_sensors
from costprobe.adapters.sensors.child.sensor import SensorContext
from costprobe.core.clock import SystemClock
from fakes.sensing import sensor_settings

NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9


def fields_of(child, since=1, device="gpu0"):
    """The fields of a whole interval that began after the script was set."""
    child.wait_for("reading", device=device, since=since)
    return child.wait_for("reading", device=device, since=len(child.messages))["fields"]


def test_handshake_has_devices_and_driver_versions(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    handshake = start_child(fake.env()).known()
    versions = {"driver_version": "580.65.06", "nvml_version": "13.580.65.06"}
    assert (handshake["versions"], handshake["faults"]) == (versions, {})
    assert sorted(device["name"] for device in handshake["devices"]) == ["gpu0", "gpu1"]
    device = min(handshake["devices"], key=lambda device: device["name"])
    assert device == {
        "name": "gpu0",
        "kind": "gpu",
        "uuid": "GPU-00000000-fake-4000-8000-000000000000",
        "model": "NVIDIA Fake 80GB",
        "memory_bytes": 80 << 30,
        "parent": "",
        "slices": 0,
        "slices_of": 0,
        "gpu_instance": None,
        "is_persistent": True,
        "is_exclusive": False,
    }


def test_reading_has_every_metric(start_child, fake_nvml):
    fake = fake_nvml()
    gpu = fake.gpus[0]
    gpu.set(util_pct=87, mem_util_pct=41, mem_used_bytes=7 << 30, temp_c=71, ecc_uncorrected=3)
    gpu.set(sm_clock_mhz=1755, mem_clock_mhz=2500, power_limit_mw=500_000)
    gpu.set_power(300.0, at_ns=time.monotonic_ns() - 2 * 10**9)
    gpu.set_processes([1234, 99], mps_pids=[99, 5])
    gpu.throttle(power_share=0.5, thermal_share=0.25)
    child = start_child(fake.env())
    fields = dict(fields_of(child))
    assert fields.pop("energy_j") > 0
    # A reading of the counter that the host delayed is replaced by polls.
    assert fields.pop("energy_method") in {"counter", "poll"}
    throttled = fields.pop("throttle_power_s"), fields.pop("throttle_thermal_s")
    assert fields == {
        "power_w": pytest.approx(300, rel=0.001),
        "power_max_w": 300.0,
        "util_pct": 87.0,
        "mem_util_pct": 41.0,
        "mem_used_bytes": 7 << 30,
        "mem_total_bytes": 80 << 30,
        "temp_c": 71.0,
        "sm_clock_mhz": 1755.0,
        "mem_clock_mhz": 2500.0,
        "power_limit_w": 500.0,
        "ecc_uncorrected": 3,
        "processes": 3,
    }
    assert throttled[0] == pytest.approx(2 * throttled[1], rel=0.01)
    # However long the rows became: the counter lags by up to 0.1 s at both ends.
    readings = [message for message in child.messages if message["type"] == "reading"]
    counted_j = sum(reading["fields"].get("energy_j", 0.0) for reading in readings)
    spanned_s = (readings[-1]["end_ns"] - readings[0]["start_ns"]) / 1e9
    assert counted_j == pytest.approx(300 * spanned_s, abs=2 * 30)


def test_library_mismatch_at_start_is_reported_before_the_child_ends(start_child, fake_nvml):
    fake = fake_nvml()
    fake.fail("nvmlInitWithFlags", 18)
    child = start_child(fake.env(), quarantine_first_s=0.1)
    assert "reboot" in child.wait_for("fault", code="LIB_RM_VERSION_MISMATCH")["detail"]
    assert child.wait_for("exit")["reason"] == "library_mismatch"


def test_hung_call_ends_the_child_after_the_other_devices_wrote_their_readings(
    start_child, fake_nvml
):
    fake = fake_nvml(gpus=3)
    child = start_child(fake.env(), aggregate_s=1e6)
    child.wait_for("handshake")
    child.wait_for("heartbeat", since=len(child.messages))
    hang = fake.hang("nvmlDeviceGetClockInfo", gpu=2)
    exit_message = child.wait_for("exit")
    assert exit_message == {"type": "exit", "reason": "hung", "devices": ["gpu2"]}
    fault = child.wait_for("fault")
    assert (fault["device"], fault["call"], fault["code"], fault["reaction"]) == (
        "gpu2",
        "nvmlDeviceGetClockInfo",
        "DEADLINE",
        "restart",
    )
    partial = {message["device"] for message in child.messages if message["type"] == "reading"}
    assert partial == {"gpu0", "gpu1"}
    child.process.wait(60)
    hang.clear()


def test_other_devices_are_sampled_while_one_hangs(start_child, fake_nvml, wait_until):
    fake = fake_nvml(gpus=2)
    child = start_child(fake.env(), deadline_s=30.0)
    child.wait_for("handshake")
    hang = fake.hang("nvmlDeviceGetUtilizationRates", gpu=0)
    time.sleep(0.3)
    before = fake.calls("nvmlDeviceGetUtilizationRates", gpu=1)
    seen = len(child.messages)
    child.wait_for("reading", device="gpu1", since=seen)
    # On a busy machine samples are skipped, and a row may hold but one.
    wait_until(lambda: fake.calls("nvmlDeviceGetUtilizationRates", gpu=1) > before + 3)
    hang.clear()
    child.wait_for("reading", device="gpu0", since=len(child.messages))


def test_processors_replace_gpus_where_there_is_no_driver(start_child):
    child = start_child(cpu="auto")
    handshake = child.known()
    assert handshake["versions"] == {}
    assert [device["kind"] for device in handshake["devices"]] == ["cpu"]
    fields = fields_of(child, device="cpu")
    assert fields["energy_method"] in ("rapl", "modelled")
    assert fields.keys() >= {"energy_j", "power_w", "util_pct", "mem_used_bytes"}


def test_processors_are_read_beside_gpus_only_if_configured():
    found = [CpuSensor(Path("/"), SystemClock(), lambda *_: None)]
    wrong = []
    for cpu, others, expected in (
        ("auto", [], 1),
        ("auto", found, 0),
        (True, found, 1),
        (False, [], 0),
    ):
        context = SensorContext(sensor_settings(cpu=cpu), SystemClock(), lambda *_: None, others)
        if len(cpu_sensors(context)) != expected:
            wrong.append((cpu, len(others)))
    assert wrong == []


def test_host_without_proc_is_a_fault(start_child, tmp_path):
    child = start_child(cpu=True, gpus=False, sysfs_root=str(tmp_path))
    fault = child.wait_for("fault", device="cpu")
    assert (fault["call"], fault["reaction"]) == ("/proc/stat", "quarantine")
    assert child.known()["devices"] == []


def test_malformed_commands_are_ignored(start_child):
    child = start_child(cpu=True, gpus=False)
    child.wait_for("handshake")
    child.process.stdin.write(b"nonsense\n" + b"x" * 100_000 + b'\n{"cmd":"energy"}\n')
    child.send({"cmd": "dance"})
    child.send({"cmd": "mark", "device": "gpu9"})
    child.send({"cmd": "stop"})
    assert child.wait_for("exit")["reason"] == "stop"


def test_child_loads_no_large_package(request):
    code = (
        "import sys, costprobe.adapters.sensors.child.main\n"
        "big = {'torch', 'numpy', 'pydantic', 'apscheduler', 'asyncio', 'sqlite3', 'click'}\n"
        "print(sorted(big & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code]
    root = request.config.rootpath
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
