import pytest

from agent.telemetry.events import FaultLog, of_end, of_fault
from agent.telemetry.roster import Roster
from agent.telemetry.wire import Quarantined, SensorSettings

S = 10**9
LOST = {
    "device": "gpu3",
    "call": "nvmlDeviceGetPowerUsage",
    "code": "GPU_IS_LOST",
    "reaction": "quarantine",
    "detail": "GPU is lost",
    "retry_after_s": 60.0,
}


def device_of(index):
    return {
        "name": f"gpu{index}",
        "kind": "gpu",
        "uuid": f"GPU-{index}",
        "model": "Board",
        "index": index,
        "memory_bytes": 80,
    }


def test_a_lost_gpu_is_critical_and_says_what_follows():
    event = of_fault(LOST, 5)
    assert (event.kind, event.severity, event.device) == ("fault", "critical", "gpu3")
    assert event.title == "gpu3: GPU_IS_LOST from nvmlDeviceGetPowerUsage"
    assert event.detail == (
        "GPU is lost. The device is left alone; the other devices go on. The next try is in 60 s."
    )


@pytest.mark.parametrize(("code", "severity"), [("ENOENT", "info"), ("EACCES", "warning")])
def test_modelled_energy_is_a_warning_only_where_it_could_be_measured(code, severity):
    fault = {"device": "cpu", "call": "/sys/x", "code": code, "reaction": "modelled", "detail": "d"}
    event = of_fault(fault, 5)
    assert event.severity == severity
    assert event.title == f"cpu: energy is modelled ({code} from /sys/x)"


def test_a_fault_of_no_device_is_the_sensors():
    event = of_fault({**LOST, "device": None, "detail": ""}, 5)
    assert event.title.startswith("sensors: ")
    assert event.detail.startswith("The device is left alone")


def test_the_end_of_the_child_carries_its_last_words():
    event = of_end("ended with status 1", "boom", 4, 8.0, 5)
    assert event.title == "sensors: the sensor process ended with status 1"
    assert "started again in 8 s. It said: boom. This is failure 4 in a row." in event.detail


def test_the_same_fault_is_told_every_ten_minutes_at_most():
    log = FaultLog()
    told = [log.take(LOST, minute * 60 * S, 0) is not None for minute in range(22)]
    assert [minute for minute, was_told in enumerate(told) if was_told] == [0, 10, 20]
    assert log.take({**LOST, "device": "gpu4"}, 0, 0) is not None
    assert log.last.title == "gpu4: GPU_IS_LOST from nvmlDeviceGetPowerUsage"


def test_energy_that_is_modelled_for_want_of_rapl_is_no_fault_and_hides_none():
    log = FaultLog()
    missing = {"device": "cpu", "call": "/sys/x", "code": "ENOENT", "reaction": "modelled"}
    assert log.take({**missing, "detail": "d"}, 0, 0) is not None
    assert log.last is None
    log.take(LOST, 0, 0)
    log.take({**missing, "detail": "d"}, 700 * S, 0)
    assert log.last.title == "gpu3: GPU_IS_LOST from nvmlDeviceGetPowerUsage"
    log.take({**missing, "detail": "d", "code": "EACCES"}, 0, 0)
    assert log.last.title == "cpu: energy is modelled (EACCES from /sys/x)"


def test_the_log_of_faults_is_bounded():
    log = FaultLog()
    told = [log.take({**LOST, "device": f"gpu{i}"}, 0, 0) for i in range(1000)]
    assert None not in told


class TestRoster:
    def test_devices_come_in_order_of_their_index_and_the_cpu_last(self):
        roster = Roster(SensorSettings())
        cpu = {**device_of(0), "name": "cpu", "kind": "cpu", "index": None}
        for message in (cpu, device_of(2), device_of(0)):
            assert roster.appeared(message) is False
        assert [device.name for device in roster.devices()] == ["gpu0", "gpu2", "cpu"]

    def test_a_hung_gpu_is_handed_to_the_next_child_with_the_time_that_is_left(self):
        roster = Roster(SensorSettings())
        roster.appeared(device_of(2))
        assert roster.hung("gpu2", 0) == 60
        assert roster.quarantined(20 * S) == (Quarantined(2, 40.0),)
        assert not roster.is_available("gpu2")
        assert roster.status(20 * S)["gpu2"]["retry_in_s"] == 40.0
        assert roster.appeared(device_of(2)) is True
        assert roster.quarantined(30 * S) == ()
        assert roster.hung("gpu2", 61 * S) == 120

    def test_a_cpu_cannot_be_set_aside(self):
        roster = Roster(SensorSettings())
        assert roster.hung("cpu", 0) is None
        assert roster.quarantined(0) == ()

    def test_a_gpu_that_was_never_seen_shows_in_the_status(self):
        roster = Roster(SensorSettings())
        roster.set_aside("gpu7", 5.0, 0)
        assert roster.status(0)["gpu7"] == {
            "kind": "gpu",
            "model": None,
            "state": "set aside",
            "age_s": None,
            "counter_to_power": None,
            "suspect": None,
            "retry_in_s": 5.0,
        }
        assert roster.devices() == ()
