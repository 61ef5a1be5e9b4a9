import pytest
from costprobe.adapters.sensors.devices import (
    DeviceRegistry,
    FaultLog,
    child_end_event,
    fault_event,
)
from costprobe.adapters.sensors.supervisor import MessageHandler
from costprobe.pricing.book import PriceBook
from costprobe.pricing.plans import OnDemandPlan
from fakes.clock import FakeClock
from fakes.sensing import sensor_settings

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
        "memory_bytes": 80,
    }


def test_lost_gpu_fault_is_critical():
    event = fault_event(LOST, 5)
    assert (event.kind, event.severity, event.device) == ("fault", "critical", "gpu3")
    assert event.title == "gpu3: GPU_IS_LOST from nvmlDeviceGetPowerUsage"
    assert event.detail == (
        "GPU is lost. The device is quarantined; the other devices are not affected."
        " Next try in 60 s."
    )


@pytest.mark.parametrize(("code", "severity"), [("ENOENT", "info"), ("EACCES", "warning")])
def test_modelled_energy_is_a_warning_only_where_it_could_be_measured(code, severity):
    fault = {"device": "cpu", "call": "/sys/x", "code": code, "reaction": "modelled", "detail": "d"}
    event = fault_event(fault, 5)
    assert event.severity == severity
    assert event.title == f"cpu: energy is modelled ({code} from /sys/x)"


def test_fault_without_a_device_is_titled_sensors():
    event = fault_event({**LOST, "device": None, "detail": ""}, 5)
    assert event.title.startswith("sensors: ")
    assert event.detail.startswith("The device is quarantined")


def test_event_of_the_childs_end_has_its_last_stderr_line():
    event = child_end_event("ended with status 1", "boom", 4, 8.0, 5)
    assert event.title == "sensors: the sensor process ended with status 1"
    assert (
        "restarted in 8 s. Last line of its stderr: boom. This is failure 4 in a row."
        in event.detail
    )


def test_same_fault_is_reported_every_ten_minutes_at_most():
    log = FaultLog()
    reported = [log.event(LOST, minute * 60 * S, 0) is not None for minute in range(22)]
    assert [minute for minute, was_reported in enumerate(reported) if was_reported] == [0, 10, 20]
    assert log.event({**LOST, "device": "gpu4"}, 0, 0) is not None
    assert log.last.title == "gpu4: GPU_IS_LOST from nvmlDeviceGetPowerUsage"


def test_modelled_energy_without_rapl_is_not_kept_as_the_last_fault():
    log = FaultLog()
    missing = {"device": "cpu", "call": "/sys/x", "code": "ENOENT", "reaction": "modelled"}
    assert log.event({**missing, "detail": "d"}, 0, 0) is not None
    assert log.last is None
    log.event(LOST, 0, 0)
    log.event({**missing, "detail": "d"}, 700 * S, 0)
    assert log.last.title == "gpu3: GPU_IS_LOST from nvmlDeviceGetPowerUsage"
    log.event({**missing, "detail": "d", "code": "EACCES"}, 0, 0)
    assert log.last.title == "cpu: energy is modelled (EACCES from /sys/x)"


def test_fault_log_is_bounded():
    log = FaultLog()
    events = [log.event({**LOST, "device": f"gpu{i}"}, 0, 0) for i in range(1000)]
    assert None not in events


class TestDeviceRegistry:
    def test_devices_are_in_natural_order_with_the_cpu_last(self):
        registry = DeviceRegistry(sensor_settings())
        cpu = {**device_of(0), "name": "cpu", "kind": "cpu", "uuid": "machine"}
        for message in (cpu, device_of(2), device_of(0)):
            assert registry.add(message) is False
        assert [device.name for device in registry.devices()] == ["gpu0", "gpu2", "cpu"]

    def test_hung_gpu_stays_quarantined_for_the_rest_of_its_time(self):
        registry = DeviceRegistry(sensor_settings())
        registry.add(device_of(2))
        assert registry.quarantine_hung("gpu2", 0) == 60
        assert registry.quarantined_s(20 * S) == {"gpu2": 40.0}
        assert not registry.is_available("gpu2")
        assert registry.status(20 * S)["gpu2"]["retry_in_s"] == 40.0
        assert registry.add(device_of(2)) is True
        assert registry.quarantined_s(30 * S) == {}
        assert registry.quarantine_hung("gpu2", 61 * S) == 120

    def test_quarantined_gpu_that_was_never_discovered_is_in_the_status(self):
        registry = DeviceRegistry(sensor_settings())
        registry.quarantine("gpu7", 5.0, 0)
        assert registry.status(0)["gpu7"] == {
            "kind": None,
            "model": None,
            "state": "quarantined",
            "age_s": None,
            "counter_to_power_ratio": None,
            "suspect": None,
            "retry_in_s": 5.0,
        }
        assert registry.devices() == ()


def mig_of(number, slices):
    more = {"name": f"gpu0.mig{number}", "kind": "mig", "uuid": f"MIG-{number}"}
    return {**device_of(0), **more, "parent": "gpu0", "slices": slices, "slices_of": 7}


class TestSlices:
    """A board whose MIG devices are destroyed, as the daemon sees it."""

    def handler(self, events):
        handler = MessageHandler(sensor_settings(), events.append, FakeClock(5 * S))
        devices = [device_of(0), mig_of(0, 1), mig_of(1, 2)]
        names = ["gpu0.mig0", "gpu0.mig1", "gpu0.mig2"]
        lost = {**LOST, "type": "fault", "device": "gpu0.mig2"}
        handler.take([{"type": "slices", "device": "gpu0", "names": names}])
        handler.take([{"type": "handshake", "devices": devices}, lost])
        events.clear()
        return handler

    def price_of(self, handler, device):
        plan = OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": 7})
        return PriceBook([plan], None, handler.registry.devices()).terms(device, 0).rate.per_hour

    def test_board_has_its_whole_price_again_and_destroyed_slices_are_no_fault(self):
        events = []
        handler = self.handler(events)
        assert [self.price_of(handler, name) for name in ("gpu0", "gpu0.mig1")] == [4, 2]
        assert handler.take([{"type": "slices", "device": "gpu0", "names": []}]) == 0
        assert [device.name for device in handler.registry.devices()] == ["gpu0"]
        assert handler.registry.status(9 * S).keys() == {"gpu0"}
        assert handler.registry.quarantined_s(9 * S) == {}
        assert self.price_of(handler, "gpu0") == 7
        assert [(event.severity, event.device) for event in events] == [
            ("info", f"gpu0.mig{number}") for number in range(3)
        ]

    def test_slices_that_exist_are_kept(self):
        events = []
        handler = self.handler(events)
        handler.take([{"type": "slices", "device": "gpu0", "names": ["gpu0.mig1"]}])
        handler.take([{"type": "slices", "device": "gpu1", "names": []}])
        assert [device.name for device in handler.registry.devices()] == ["gpu0", "gpu0.mig1"]
        assert self.price_of(handler, "gpu0") == 5
