"""What the daemon takes from the messages of a child: devices, quarantine, and events of faults."""

import json

from costprobe.adapters.sensors.child.energy import KEPT
from costprobe.adapters.sensors.devices import DeviceRegistry
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
from record.record_files import check_outcomes

S = 10**9


def device_of(name, kind="gpu", **more):
    own = {"name": name, "kind": kind, "uuid": f"U-{name}", "model": "B", "memory_bytes": 8}
    return own | more


def test_messages_of_a_child_become_devices_prices_and_events():
    """Of steps that are messages, or seconds that pass; see `record_files`."""
    plan = OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": 7})

    def outcome(text):
        events, clock = [], FakeClock(5 * S)
        supervisor = SensorSupervisor((), sensor_settings(), events.append, clock)
        for step in json.loads(text)["steps"]:
            if isinstance(step, list):
                assert supervisor.take(step) == 0
            else:
                clock.move(step)
        found = supervisor.devices()
        book = PriceBook([plan], None, found)
        prices = {each.name: str(book.terms(each.name, 0).rate.per_hour) for each in found}
        seen = [[each.severity, each.device, each.title, each.detail] for each in events]
        devices = supervisor.status()["devices"]
        suspect = {name: status.get("suspect") for name, status in devices.items()}
        return [seen, prices, suspect, supervisor.last_fault]

    check_outcomes("sensor_messages.json", outcome)


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
