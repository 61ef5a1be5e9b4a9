"""The daemon's side, with real child processes that hang, die, write malformed lines and recover."""

import os
import signal

from adapters.sensors.conftest import is_running
from costprobe.adapters.sensors.messages import UNKNOWN, Absent
from costprobe.adapters.sensors.supervisor import SensorSupervisor
from costprobe.core.clock import SystemClock
from costprobe.core.records import Device
from costprobe.devices.use import DeviceWindows
from fakes.sensing import sensor_settings

S = 10**9
DRIVER_NOT_LOADED = 9
SAMPLED = "nvmlDeviceGetUtilizationRates"
# A short deadline, for drivers that hang: on a busy machine other calls exceed it, too.
HANGING = {"deadline_s": 0.5}


def test_stop_delivers_the_current_interval(watch, fake_nvml):
    fake = fake_nvml(gpus=2)
    watched = watch(fake, aggregate_s=1e6)
    watched.supervisor.wait_for_devices(60)
    watched.wait_until(lambda: len(watched.status["devices"]) == 2)
    # Two samples of each, between which there is an interval.
    watched.wait_until(lambda: min(fake.calls(SAMPLED, gpu=number) for number in (0, 1)) > 2)
    status, device = watched.status, watched.supervisor.devices()[0]
    assert (status["state"], status["driver_version"]) == ("running", "580.65.06")
    assert (status["devices"]["gpu1"]["state"], status["child_restarts"]) == ("good", 0)
    uuid = "GPU-00000000-fake-4000-8000-000000000000"
    expected = Device("gpu0", "gpu", uuid, "NVIDIA Fake 80GB", 80 << 30, is_persistent=True)
    assert device == expected
    watched.supervisor.stop()
    assert {reading.device for reading in watched.readings} == {"gpu0", "gpu1"}
    assert watched.readings[0].fields["power_w"] == 60.0
    assert not is_running(status["pid"])
    assert not watched.supervisor.is_available("gpu0")
    assert watched.events == []
    watched.supervisor.stop()


def test_hung_gpu_is_quarantined_and_the_child_restarted(watch, fake_nvml):
    fake = fake_nvml(gpus=3)
    watched = watch(fake, quarantine_first_s=2.0, aggregate_s=1e6, **HANGING)
    watched.supervisor.wait_for_devices(60)
    first_pid = watched.status["pid"]
    watched.wait_until(lambda: min(fake.calls(SAMPLED, gpu=number) for number in range(3)) > 2)
    fake.hang("nvmlDeviceGetFieldValues", gpu=1)
    event = watched.wait_for_event("gpu1: DEADLINE")
    assert (event.kind, event.severity, event.device) == ("fault", "warning", "gpu1")
    watched.wait_for_event("is running again")
    assert not watched.supervisor.is_available("gpu1")
    assert watched.status["devices"]["gpu1"]["state"] == "quarantined"
    # The intervals of the others, which were not complete.
    assert {reading.device for reading in watched.readings} == {"gpu0", "gpu2"}
    assert not is_running(first_pid)
    fake.clear()
    assert watched.wait_for_event("gpu1: NVIDIA Fake 80GB responds again").severity == "info"
    assert watched.supervisor.is_available("gpu1")


def test_many_gpus_that_hang_at_once_cost_the_others_two_restarts(watch, fake_nvml):
    fake = fake_nvml(gpus=16)
    watched = watch(fake, quarantine_first_s=600.0, startup_s=1.0, report_s=0.5, deadline_s=1.0)
    watched.supervisor.wait_for_devices(60)
    hanging = {f"gpu{number}" for number in range(14)}
    for number in range(14):
        fake.hang("*", gpu=number)

    def quarantined():
        devices = watched.status["devices"]
        return {name for name, state in devices.items() if state["state"] == "quarantined"}

    watched.wait_until(lambda: quarantined() == hanging)
    assert {e.device for e in watched.events if "DEADLINE" in e.title} == hanging
    watched.wait_for_event("is running again")
    for device in ("gpu14", "gpu15"):
        watched.wait_for_reading(device)
    assert watched.supervisor.restarts <= 3


def test_child_without_heartbeat_is_killed_and_replaced(watch, fake_nvml):
    watched = watch(fake_nvml(gpus=2), margin_s=1.0, **HANGING)
    watched.supervisor.wait_for_devices(60)
    pid = watched.status["pid"]
    os.kill(pid, signal.SIGSTOP)
    event = watched.wait_for_event("sent no message for")
    assert "restarted in" in event.detail
    watched.wait_for_event("is running again")
    assert not is_running(pid)
    watched.wait_for_reading("gpu0")


def test_gpu_whose_discovery_hangs_does_not_delay_the_others(watch, fake_nvml):
    fake = fake_nvml(gpus=2)
    hang = fake.hang("nvmlDeviceGetUUID", gpu=1)
    watched = watch(fake, startup_s=60.0, report_s=0.5)
    watched.wait_for_event("gpu1: SLOW from nvmlDeviceGetUUID")
    watched.wait_for_reading("gpu0")
    hang.clear()
    watched.wait_for_reading("gpu1")
    assert watched.supervisor.restarts == 0


def test_processors_are_read_where_there_is_no_driver_and_reported_where_there_is_no_proc(
    watch, tmp_path
):
    watched = watch(cpu="auto")
    watched.wait_for_reading("cpu")
    fields = watched.readings[-1].fields
    assert fields["energy_method"] in ("rapl", "modelled")
    assert fields.keys() >= {"energy_j", "power_w", "util_pct", "mem_used_bytes"}
    assert watched.status["driver_faults"] == {}
    watched = watch(cpu=True, gpus=False, sysfs_root=str(tmp_path))
    event = watched.wait_for_event("from /proc/stat")
    assert (event.device, event.severity) == ("cpu", "critical")
    assert watched.supervisor.wait_for_devices(60) == ()


def test_mig_devices_are_followed_without_a_fault(watch, fake_nvml):
    fake = fake_nvml()
    gpu = fake.gpus[0]
    gpu.set(util_pct=64)
    gpu.split(3, 1, 2)
    watched = watch(fake)

    def has(*layout):
        slices = [(f"gpu0.mig{number}", count) for number, count in enumerate(layout)]
        found = watched.supervisor.devices()[1:]
        return [(part.name, part.slices) for part in found] == slices

    for layout in ((3, 1, 2), (2, 5), ()):
        gpu.split(*layout) if layout else gpu.unsplit()
        watched.wait_until(lambda layout=layout: has(*layout))
        watched.wait_for_reading(f"gpu0.mig{len(layout) - 1}" if layout else "gpu0")
    watched.wait_for_reading("gpu0")
    assert watched.readings[-1].fields["util_pct"] == 64.0
    assert {event.cause for event in watched.events} == {"removed"}


def test_driver_that_hangs_for_long_is_loaded_again_by_a_new_child(watch, fake_nvml):
    fake = fake_nvml()
    hang = fake.hang("nvmlInitWithFlags")
    watched = watch(fake, startup_s=1.0, **HANGING)
    watched.wait_until(lambda: watched.supervisor.restarts > 0)
    hang.clear()
    watched.wait_for_reading("gpu0")


def test_child_without_a_handshake_or_without_an_end_of_its_line_is_killed(watch):
    silent = "import sys, time; sys.stdin.readline(); time.sleep(60)"
    endless = "import sys, time; sys.stdout.write('x' * 300000); time.sleep(60)"
    for script, words in (
        (silent, "did not find the devices in time"),
        (endless, "could not be read, and was killed"),
    ):
        watched = watch(script=script, startup_s=0.2, margin_s=1.0, **HANGING)
        watched.wait_for_event(words)
        assert watched.status["devices"] == {}


def test_processors_are_no_device_any_more_once_a_gpu_is_found(watch, fake_nvml):
    for ends_child in (False, True):
        fake = fake_nvml(gpus=1)
        absent = fake.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
        # The child that found none searches again, or is replaced by one that finds the GPU.
        watched = watch(fake, cpu="auto", quarantine_first_s=60.0 if ends_child else 0.2)
        watched.wait_for_reading("cpu")
        absent.clear()
        if ends_child:
            os.kill(watched.status["pid"], signal.SIGKILL)
        event = watched.wait_for_event("the CPUs are not measured any more")
        assert (event.severity, event.device, event.cause) == ("info", "cpu", "removed")
        watched.wait_for_reading("gpu0")
        assert [device.name for device in watched.supervisor.devices()] == ["gpu0"]
        assert set(watched.status["devices"]) == {"gpu0"}
        # Its row may be on its way when the GPU is found, but no other follows.
        seen = len(watched.readings)
        watched.wait_for_reading("gpu0")
        assert {reading.device for reading in watched.readings[seen:]} == {"gpu0"}


def test_lost_gpu_stays_quarantined_across_a_killed_child_until_it_is_back(watch, fake_nvml):
    fake = fake_nvml(gpus=2)
    watched = watch(fake, quarantine_first_s=600.0)
    watched.supervisor.wait_for_devices(60)
    fake.gpus[1].vanish()
    event = watched.wait_for_event("gpu1: GPU_IS_LOST")
    assert (event.severity, event.device) == ("critical", "gpu1")
    assert "dmesg" in event.detail
    assert watched.supervisor.restarts == 0
    os.kill(watched.status["pid"], signal.SIGKILL)
    before = fake.calls("nvmlDeviceGetHandleByIndex_v2", gpu=1)
    event = watched.wait_for_event("was killed by SIGKILL")
    assert (event.kind, event.severity) == ("fault", "warning")
    watched.wait_for_event("is running again")
    watched.wait_for_reading("gpu0")
    assert fake.calls("nvmlDeviceGetHandleByIndex_v2", gpu=1) == before
    assert 590 < watched.status["devices"]["gpu1"]["retry_in_s"] <= 600
    assert not watched.supervisor.is_available("gpu1")


SILENT_FOR_4_S = """
import json, sys, time
handshake = {"type": "handshake", "faults": {}, "versions": {}}
sys.stdin.readline()
print(json.dumps(handshake), flush=True)
sys.stdin.readline()
open(PATH, "w").close()
time.sleep(4)
print(json.dumps({"type": "drivers", "faults": {"acme": "busy"}, "versions": {}}), flush=True)
sys.stdin.readline()
"""


def test_stop_of_daemon_and_child_together_kills_no_child(watch, tmp_path):
    """The child has sent nothing within its time, because it was stopped, too."""
    asked = tmp_path / "asked"
    script = SILENT_FOR_4_S.replace("PATH", repr(str(asked)))
    watched = watch(script=script, deadline_s=0.5, margin_s=2.5)
    watched.supervisor.wait_for_devices(60)
    assert watched.supervisor.mark("gpu0")
    watched.wait_until(asked.exists)
    watched.clock.stopped_ns += 3600 * S
    watched.wait_until(lambda: watched.status["driver_faults"])
    assert (watched.supervisor.restarts, watched.events) == (0, [])


def test_windows_without_a_child_are_unknown_at_once():
    supervisor = SensorSupervisor(
        ["/nonexistent"], sensor_settings(), lambda _: None, SystemClock()
    )
    windows = DeviceWindows(supervisor, SystemClock())
    absent = Absent("the sensor process is not running")
    assert windows.energy("gpu0", 0, 6 * S, 0, 6 * S) == absent
    assert windows.activity("gpu0", 0, S, []) == UNKNOWN
    assert windows.mark("gpu0") is False
    supervisor.stop()


MALFORMED = """
import select, sys
out = sys.stdout.buffer
sys.stdin.readline()
out.write(b"Segmentation fault (core dumped)\\n[1,2]\\n{}\\n\\xff\\xfe\\n")
out.write(b'{"type":"reading","device":"gpu0"}\\n{"type":"sonnet"}\\n')
out.write(b'{"type":"heartbeat","t_ns":1,"ages_s":[1]}\\n')
out.write(b'{"type":"handshake","faults":{},"versions":{}}\\n')
out.flush()
while not select.select([sys.stdin], [], [], 0.1)[0]:
    out.write(b'{"type":"heartbeat","t_ns":1,"ages_s":{}}\\n')
    out.flush()
"""


def test_malformed_lines_are_counted_and_ignored(watch):
    watched = watch(script=MALFORMED)
    assert watched.supervisor.wait_for_devices(60) == ()
    watched.wait_until(lambda: watched.status["state"] == "running")
    assert watched.status["malformed_lines"] == 7
    assert watched.readings == []


def test_child_that_fails_again_and_again_is_reported_at_powers_of_two(watch, wait_until):
    watched = watch(script="raise SystemExit('libcudart is not what it was')")
    wait_until(lambda: watched.supervisor.restarts >= 5)
    event, *later = watched.events
    assert "Last line of its stderr: libcudart is not what it was." in event.detail
    assert event.title == "sensors: the sensor process ended with status 1"
    assert [event.detail.split("This is ")[1].split(".")[0] for event in later] == [
        "failure 2 in a row",
        "failure 4 in a row",
    ]
    events = []
    supervisor = SensorSupervisor(["/nonexistent"], sensor_settings(), events.append, SystemClock())
    supervisor.start()
    wait_until(lambda: events)
    assert "cannot be started" in events[0].title
    supervisor.stop()


def test_failing_consumer_does_not_stop_sampling_nor_the_next_consumer(watch, fake_nvml):
    def consume(_):
        raise OSError("the disk is full")

    watched, seen = watch(fake_nvml()), []
    watched.supervisor.deliver_to(consume, seen.extend)
    watched.wait_until(lambda: len(seen) >= 3)
    assert watched.status["callback_errors"] >= 2
