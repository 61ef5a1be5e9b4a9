"""The energy of a server beside that of its devices, by hand."""

from decimal import Decimal

import pytest
from costprobe.adapters.redfish.power import PowerError, PowerReading, ServerPowerConfig
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.server import ServerPower, TimedReading, interval_between, step_of
from costprobe.devices.settings import TelemetryConfig
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan
from fakes.clock import FakeClock

GPUS = [Device(f"gpu{n}", "gpu", f"GPU-{n}", "NVIDIA Fake 80GB") for n in range(2)]
SLICE = Device("gpu0.mig1", "mig", "MIG-1", "MIG", parent="gpu0", slices=1, slices_of=7)
TARIFF = ElectricityConfig(tariff_per_kwh=Decimal("0.30"), pue=Decimal("1.2"))


def between(first, last, length_s=60, step_kwh=0.001):
    end_ns = length_s * NS_PER_S
    readings = TimedReading(0, PowerReading(*first)), TimedReading(end_ns, PowerReading(*last))
    return interval_between(*readings, step_kwh)


def test_energy_is_that_of_the_counter_if_it_is_fine_and_possible():
    # 0.02 kWh are 72 kJ; 1,000 and 1,400 W over 60 s also are.
    cases = (
        ((1000, 5.0), (1400, 5.025), 0.001, 90_000, "counter", ""),
        ((1000, 5.0), (1400, 5.025), 0.01, 72_000, "poll", ""),
        ((1000, 5.0), (1400, 5.0), 0.001, 72_000, "poll", ""),
        ((1000, None), (1400, 5.0), 0.001, 72_000, "poll", ""),
        ((1000, 5.0), (1400, 4.0), 0.001, 72_000, "poll", "went back from 5 to 4 kWh"),
        ((1000, 5.0), (1400, 25.0), 0.001, 72_000, "poll", "grew by 20 kWh in 60 s"),
    )
    for first, last, step_kwh, energy_j, method, note in cases:
        found = between(first, last, step_kwh=step_kwh)
        assert found.energy_j == pytest.approx(energy_j), note
        assert (found.method, note in found.note, bool(note)) == (method, True, bool(found.note))
    steps = (12.345, 12.300000190734863, 56438.0, 12500.0, 12.3456789)
    assert [step_of(kwh) for kwh in steps] == [0.001, 0.1, 1.0, 1.0, 0.001]


class Bench:
    """A server of two GPUs on a fake clock, read every minute."""

    def __init__(self, *, devices=GPUS, electricity=TARIFF, included=False, missing=()):
        self.clock, self.ledger = FakeClock(), MemoryLedger()
        self.answer, self.devices = None, devices
        plan = {"plan": "on_demand", "per_hour": Decimal(4), "electricity_included": included}
        book = PriceBook([OnDemandPlan.model_validate(plan)], electricity, devices)
        self.power = ServerPower(
            ServerPowerConfig.model_validate({"url": "http://bmc/redfish/v1/Chassis/1/Power"}),
            TelemetryConfig(),
            devices,
            book,
            self.ledger,
            self.clock,
            tags={"host": "h1"},
            missing=lambda: dict.fromkeys(missing, "absent"),
            read=lambda _: self._answer(),
        )

    def _answer(self):
        if isinstance(self.answer, str):
            raise PowerError(self.answer)
        return PowerReading(self.answer)

    def minute(self, answer, gpu_w=300.0, **fields):
        """Let a minute pass in which each device draws gpu_w, and read the server's power."""
        for _ in range(6):
            start_ns = self.clock.monotonic_ns()
            self.clock.move(10)
            end_ns, energy_j = self.clock.monotonic_ns(), gpu_w * 10
            used = {"energy_j": energy_j, "energy_method": "counter", **fields}
            rows = [(Reading(d.name, start_ns, end_ns, used), d) for d in self.devices]
            self.power.record_readings(rows)
        self.answer = answer
        self.power.poll()

    def rows(self):
        return [row for row in self.ledger.points if row.measurement == "server"]


def test_rest_is_the_server_without_its_devices_with_its_electricity_in_money():
    bench = Bench(devices=[*GPUS, SLICE])
    bench.minute(1000)
    assert bench.rows() == []
    bench.minute(1400)
    (row,) = bench.rows()
    # 1,200 W and 2 x 300 W for 60 s, at 0.36 a kWh.
    assert row.tags == {"host": "h1", "currency": "USD"}
    assert row.fields == {
        "power_w": 1200.0,
        "energy_j": 72_000.0,
        "energy_method": "poll",
        "window_s": 60.0,
        "devices_energy_j": pytest.approx(36_000.0),
        "others_energy_j": pytest.approx(36_000.0),
        "others_window_s": 60.0,
        "cost": pytest.approx(0.0072),
        "cost_others": pytest.approx(0.0036),
    }
    assert row.time_ns == bench.clock.time_ns()
    status = bench.power.status()
    assert (status["fault"], status["last"]["others_power_w"]) == (None, pytest.approx(600.0))
    assert status["last"]["cost_others_per_h"] == pytest.approx(0.216)


def test_money_needs_a_tariff_and_electricity_that_is_paid_apart():
    for more in ({"electricity": None}, {"included": True}):
        bench = Bench(**more)
        bench.minute(1000)
        bench.minute(1000)
        (row,) = bench.rows()
        assert row.fields["others_energy_j"] == pytest.approx(24_000.0)
        assert not {"cost", "cost_others"} & row.fields.keys()
        assert "currency" not in row.tags
        assert bench.power.status()["last"]["cost_others_per_h"] is None


def test_rest_is_unknown_where_a_device_is():
    module = {"energy_scope": "module"}
    cases = (
        ({"missing": ("gpu2",)}, {}, "gpu2 is not measured"),
        ({}, module, "several devices report the energy of a module"),
        ({}, {"energy_suspect": True}, "the energy of gpu0 is suspect"),
        ({}, {"energy_method": "modelled"}, "the energy of gpu0 is modelled"),
        ({}, {"energy_j": None}, "the energy of gpu0 is unknown"),
    )
    for more, fields, problem in cases:
        bench = Bench(**more)
        bench.minute(1000)
        bench.minute(1000, **fields)
        (row,) = bench.rows()
        assert row.fields["energy_j"] == 60_000.0, problem
        assert not {"devices_energy_j", "others_energy_j", "cost_others"} & row.fields.keys()
        assert problem in bench.power.status()["last"]["problem"]
        assert bench.power.status()["fault"] is None


def test_power_of_another_server_and_an_old_reading_are_faults():
    bench = Bench()
    bench.minute(400)
    bench.minute(400)
    assert "less than the 600 W of the devices" in bench.power.status()["fault"]
    bench = Bench()
    bench.minute(900)
    bench.minute(900)
    # A single reading between two peaks is not the mean: the sum over intervals counts.
    bench.minute(500, gpu_w=400.0)
    assert bench.rows()[-1].fields["others_energy_j"] == pytest.approx(-6000.0)
    assert bench.power.status()["fault"] is None
    bench = Bench()
    for minute in range(14):
        bench.minute(1500, gpu_w=100.0 if minute < 8 else 400.0)
    fault = bench.power.status()["fault"]
    assert "reports 1,500 W for 13 min while the devices' power changed by 600 W" in fault
    assert "others_energy_j" not in bench.rows()[-1].fields
    bench.minute(1501)
    bench.minute(1501)
    assert bench.power.status()["fault"] is None


def test_failed_read_is_a_fault_and_a_gap():
    bench = Bench()
    bench.minute(1000)
    for _ in range(3):
        bench.minute("bmc: no route")
    assert bench.power.status() == {"every_s": 60.0, "fault": "bmc: no route", "last": None}
    bench.minute(1000)
    assert bench.rows() == []
    bench.minute(1000)
    assert [row.fields["window_s"] for row in bench.rows()] == [60.0]
    assert bench.power.status()["fault"] is None
