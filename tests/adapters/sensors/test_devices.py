"""What the daemon takes from the messages of a child: devices, quarantine, and events of faults."""

import pytest
from costprobe.adapters.sensors.child.energy import KEPT
from costprobe.adapters.sensors.devices import DeviceRegistry, fault_event
from costprobe.adapters.sensors.messages import (
    LINE_BYTES_MAX,
    Backoff,
    EnergyReading,
    Power,
    Sample,
    Shares,
    WatchedReadings,
    encode,
)
from costprobe.adapters.sensors.supervisor import SensorSupervisor
from costprobe.core.records import NS_PER_S
from costprobe.pricing.book import PriceBook
from costprobe.pricing.plans import OnDemandPlan
from fakes.clock import FakeClock
from fakes.sensing import sensor_settings

S = 10**9
LOST = {
    "type": "fault", "device": "gpu3", "call": "nvmlDeviceGetPowerUsage", "code": "GPU_IS_LOST",
    "reaction": "quarantine", "detail": "GPU is lost", "retry_after_s": 60.0,
}  # fmt: skip
MODELLED = {**LOST, "device": "cpu", "call": "/sys/x", "code": "ENOENT", "reaction": "modelled"}


def device_of(name, kind="gpu", **more):
    own = {"name": name, "kind": kind, "uuid": f"U-{name}", "model": "B", "memory_bytes": 8}
    return own | more


def mig_of(number, slices):
    return device_of(f"gpu0.mig{number}", "mig", parent="gpu0", slices=slices, slices_of=7)


def test_faults_become_events_with_their_consequence():
    denied = {**MODELLED, "code": "EACCES"}
    messages = (LOST, {**LOST, "device": None, "detail": ""}, MODELLED, denied)
    events = [fault_event(message, 5) for message in messages]
    consequence = "The device is quarantined; the other devices are not affected. Next try in 60 s."
    assert [(event.severity, event.title) for event in events] == [
        ("critical", "gpu3: GPU_IS_LOST from nvmlDeviceGetPowerUsage"),
        ("critical", "sensors: GPU_IS_LOST from nvmlDeviceGetPowerUsage"),
        ("info", "cpu: energy is modelled (ENOENT from /sys/x)"),
        ("warning", "cpu: energy is modelled (EACCES from /sys/x)"),
    ]
    assert [event.detail for event in events[:2]] == [f"GPU is lost. {consequence}", consequence]
    assert (events[0].kind, events[0].device) == ("fault", "gpu3")


@pytest.fixture
def daemon():
    """A supervisor without a child, and the events that it reported."""
    events = []
    supervisor = SensorSupervisor((), sensor_settings(), events.append, FakeClock(5 * S))
    supervisor.clock = supervisor._clock  # noqa: SLF001 - the fake's
    return supervisor, events


def test_same_fault_is_reported_every_ten_minutes_at_most(daemon):
    supervisor, events = daemon
    minutes = []
    for minute in range(22):
        supervisor.take([LOST])
        minutes += [minute] * len(events)
        events.clear()
        supervisor.clock.move(60)
    assert minutes == [0, 10, 20]
    supervisor.take([{**LOST, "device": "gpu4"}, MODELLED])
    # Energy that no host of this kind can measure does not hide a fault that can be fixed.
    assert len(events) == 2
    assert supervisor.last_fault == "gpu4: GPU_IS_LOST from nvmlDeviceGetPowerUsage"


def test_registry_has_devices_in_order_and_their_quarantine():
    registry = DeviceRegistry(sensor_settings())
    for message in (device_of("cpu", "cpu"), device_of("gpu10"), device_of("gpu2")):
        assert registry.add(message) is False
    assert [device.name for device in registry.devices()] == ["gpu2", "gpu10", "cpu"]
    registry.quarantine_hung("gpu2", 0)
    assert registry.quarantined_s(20 * S) == {"gpu2": 40.0}
    assert not registry.is_available("gpu2")
    assert registry.status(20 * S)["gpu2"]["retry_in_s"] == 40.0
    assert registry.add(device_of("gpu2")) is True
    assert registry.quarantined_s(30 * S) == {}
    registry.quarantine_hung("gpu2", 61 * S)
    assert registry.quarantined_s(61 * S) == {"gpu2": 120.0}
    # One that was never discovered.
    registry.quarantine("gpu7", 5.0, 0)
    of_unknown = registry.status(0)["gpu7"]
    assert (of_unknown["state"], of_unknown["retry_in_s"]) == ("quarantined", 5.0)
    assert registry.get("gpu7") is None
    # A board under another name does not remain under the one before.
    registry.add({**device_of("gpu3"), "uuid": "U-gpu10"})
    assert [device.name for device in registry.devices()] == ["gpu2", "gpu3", "cpu"]


def test_destroyed_slices_are_no_fault_and_their_board_has_its_price_again(daemon):
    supervisor, events = daemon
    plan = OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": 7})

    def prices():
        book = PriceBook([plan], None, supervisor.devices())
        return {d.name: book.terms(d.name, 0).rate.per_hour for d in supervisor.devices()}

    devices = [device_of("gpu0"), mig_of(0, 1), mig_of(1, 2)]
    lost = {**LOST, "device": "gpu0.mig2"}
    supervisor.take([*({"type": "device", "device": device} for device in devices), lost])
    events.clear()
    assert prices() == {"gpu0": 4, "gpu0.mig0": 1, "gpu0.mig1": 2}
    supervisor.take([{"type": "slices", "device": "gpu1", "names": []}])
    for names, expected in (
        (["gpu0.mig1"], {"gpu0": 5, "gpu0.mig1": 2}),
        ([], {"gpu0": 7}),
    ):
        assert supervisor.take([{"type": "slices", "device": "gpu0", "names": names}]) == 0
        assert prices() == expected
    assert supervisor.status()["devices"].keys() == {"gpu0"}
    assert [(event.severity, event.device) for event in events] == [
        ("info", f"gpu0.mig{number}") for number in (0, 2, 1)
    ]


def test_suspect_energy_is_reported_when_it_changes(daemon):
    supervisor, events = daemon
    supervisor.take([{"type": "device", "device": device_of("gpu0")}])
    for ratio, suspect in ((1.0, False), (0.7, True), (0.7, True), (1.0, False)):
        message = {"type": "selftest", "device": "gpu0", "ratio": ratio, "suspect": suspect}
        supervisor.take([message])
    assert [(event.severity, event.title) for event in events] == [
        ("warning", "gpu0: its energy is suspect"),
        ("info", "gpu0: the energy sensors agree again"),
    ]
    assert "counts 70 % of the integrated power" in events[0].detail
    assert supervisor.status()["devices"]["gpu0"]["suspect"] is False


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


def test_waits_double_up_to_the_maximum_until_a_time_without_failures():
    backoff = Backoff(1, 60, reset_after_s=300)
    assert [backoff.next_s(0) for _ in range(2000)] == [1, 2, 4, 8, 16, 32, *[60] * 1994]
    over_ns = 60 * NS_PER_S
    assert backoff.next_s(over_ns + 300 * NS_PER_S) == 60
    over_ns += 360 * NS_PER_S
    assert (backoff.next_s(over_ns + 301 * NS_PER_S), backoff.failures) == (1, 1)
