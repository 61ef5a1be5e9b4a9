"""The energy of a server beside that of its devices, by hand."""

import json
from decimal import Decimal

from costprobe.adapters.redfish.power import PowerError, PowerReading, ServerPowerConfig
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.server import ServerPower, TimedReading, interval_between, step_of
from costprobe.devices.settings import TelemetryConfig
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan
from fakes.clock import FakeClock
from record.record_files import check_outcomes

GPUS = [Device(f"gpu{n}", "gpu", f"GPU-{n}", "NVIDIA Fake 80GB") for n in range(2)]
SLICE = Device("gpu0.mig1", "mig", "MIG-1", "MIG", parent="gpu0", slices=1, slices_of=7)
TARIFF = ElectricityConfig(tariff_per_kwh=Decimal("0.30"), pue=Decimal("1.2"))


def test_energy_is_that_of_the_counter_if_it_is_fine_and_possible():
    """0.02 kWh are 72 kJ; 1,000 and 1,400 W over 60 s also are; see `record_files`."""

    def energy(text):
        _, first, last, step_kwh = json.loads(text)
        begin, end = (
            TimedReading(end_ns, PowerReading(*reading))
            for end_ns, reading in ((0, first), (60 * NS_PER_S, last))
        )
        found = interval_between(begin, end, step_kwh)
        return [found.energy_j, found.method, found.note]

    check_outcomes("server_energies.json", energy)
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

    def minute(self, answer, gpu_w, fields):
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


def test_rest_is_the_server_without_its_devices_with_its_electricity_in_money():
    """Of minutes with W of the server, W of each device and fields of its readings: rows and status."""

    def rest(text):
        case = json.loads(text)
        devices = [*GPUS, SLICE] if case.get("slice") else GPUS
        electricity = TARIFF if case.get("electricity", True) else None
        options = {name: case[name] for name in ("included", "missing") if name in case}
        bench = Bench(devices=devices, electricity=electricity, **options)
        for minute in case["minutes"]:
            bench.minute(*minute)
        rows = [[dict(row.tags), dict(row.fields)] for row in bench.ledger.points]
        assert {row.measurement for row in bench.ledger.points} <= {"server"}
        return [rows[-1:], len(rows), bench.power.status()]

    check_outcomes("server_minutes.json", rest)
