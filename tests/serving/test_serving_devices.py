"""Devices billed over a window: probing, sharing and MIG; lines sum to the cost."""

from decimal import Decimal

import pytest
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.clock import utc_ns
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.use import DeviceLog, ProbeRuns
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonBook, CarbonConfig, ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan
from costprobe.serving.device_costs import (
    MAX_PIDS,
    Claimant,
    DeviceCosts,
    ProcessOwners,
)
from fakes.clock import FakeClock
from fakes.runs import probe_run
from fakes.services import service
from fakes.serving_bench import DEVICES, surroundings

S = NS_PER_S


def mig(number, slices):
    name, uuid = f"gpu0.mig{number}", f"MIG-{number}"
    return Device(name, "mig", uuid, "MIG", parent="gpu0", slices=slices, slices_of=7)


def plan(per_hour="7.2", **more):
    # Electricity is separate, so that the cost has both components.
    return OnDemandPlan.model_validate(
        {"plan": "on_demand", "per_hour": per_hour, "electricity_included": False, **more}
    )


class Bench:
    """Devices with readings of 300 W for 100 s, and their cost."""

    def __init__(
        self, services, devices=DEVICES, plans=None, proc=None, by_pid=None, per_kwh="0.36"
    ):
        self.clock = FakeClock()
        self.start_ns = self.clock.monotonic_ns()
        self.runs = ProbeRuns()
        self.log = DeviceLog(300)
        self.owners = ProcessOwners(services, proc)
        tariff = ElectricityConfig(tariff_per_kwh=Decimal(per_kwh))
        self.book = PriceBook([plan()] if plans is None else plans, tariff, devices)
        self.charges = DeviceCharges(self.book, 300)
        carbon = CarbonBook(CarbonConfig(g_per_kwh=Decimal(360)), tariff, devices)
        around = surroundings(
            self.charges, self.clock, MemoryLedger(), runs=self.runs, carbon=carbon
        )
        claimants = [Claimant.of(each) for each in services]
        self.costs = DeviceCosts(devices, claimants, around, self.log, self.owners)
        self.clock.move(100)
        self.end_ns = self.clock.monotonic_ns()
        for at in range(10):
            for device in devices:
                fields = {"energy_j": 3000.0, "energy_method": "counter", "power_w": 300.0}
                fields["util_pct"] = 40.0
                since_ns = self.start_ns + at * 10 * S
                if device.kind == "mig":
                    fields = {"mem_used_bytes": 1}
                self.read(Reading(device.name, since_ns, since_ns + 10 * S, fields, by_pid), device)
        if by_pid:
            self.owners.find_owners(by_pid)

    def read(self, reading, device=DEVICES[0]):
        self.log.record(reading)
        charged = self.charges.charge([(reading, device)], utc_ns(self.clock, 0))
        self.charges.keep(charged)
        return charged

    def bill(self):
        return self.costs.bill(self.start_ns, self.end_ns)


def cost_of(bill, **wanted):
    return float(
        sum(
            line.cost
            for found in bill.values()
            for line in found.allocation.lines
            if all(getattr(line, name) == value for name, value in wanted.items())
        )
    )


# 7.2 an hour over two boards for 100 s, and 30 kJ at 1e-7.
HELD, DRAWN = 0.1, 0.003
WHOLE = HELD + DRAWN


def outcome(start_ns, end_ns, busy_s, pids=(99,)):
    return probe_run(
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        steady_start_ns=start_ns,
        steady_end_ns=end_ns,
        busy_s=busy_s,
        pids=pids,
    )


def test_probe_is_allocated_its_time_and_energy():
    bench = Bench([service("chat", "gpu0")])
    begin_ns, end_ns = bench.start_ns + 20 * S, bench.start_ns + 45 * S
    bench.runs.begin("gpu0", begin_ns)
    assert bench.costs.is_probing_before(bench.end_ns)
    # It was busy for 10 s of its 25 s; it loaded the model in the rest.
    bench.runs.end("gpu0", end_ns + S, outcome(end_ns - 5 * S, end_ns, 10.0))
    assert not bench.costs.is_probing_before(bench.end_ns)
    bill = bench.bill()
    assert cost_of(bill, device="gpu0", part="probing") == pytest.approx(0.1 * WHOLE)
    assert cost_of(bill, device="gpu0", service="chat") == pytest.approx(0.9 * WHOLE)
    assert bill["gpu0"].energy_shares == pytest.approx({"chat": 0.9})
    # The time before the window belongs to another window.
    later = bench.costs.bill(bench.start_ns + 40 * S, bench.end_ns)
    assert cost_of(later, device="gpu0", part="probing") == pytest.approx(0.05 * WHOLE)


def comm(proc, pid, name):
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")


def test_busy_time_is_that_of_services_by_the_names_of_their_processes(tmp_path):
    commands = {11: "VLLM::EngineCor", 12: "python3", 13: "tritonserver", 15: "own", 16: "two"}
    for pid, name in commands.items():
        comm(tmp_path, pid, name)
    # A command has 15 characters; two services have processes of one name.
    names = {"chat": "VLLM::EngineCore", "rank": "tritonserver", "gone": "other"}
    names |= {"one": "two", "two": "two"}
    both = [service(name, processes=[process]) for name, process in names.items()]
    owners = ProcessOwners(both, tmp_path)
    owners.find_owners([11, 12, 13, 14, 16])
    # A process that has ended keeps its service.
    (tmp_path / "13" / "comm").unlink()
    owners.find_owners([13])
    by_pid_s = {11: 10.0, 12: 1.0, 13: 5.0, 14: 0.5, 15: 2.0, 16: 3.0}
    known = {"chat": 10.0, "rank": 5.0, "gone": None, "one": None, "two": None}
    assert owners.busy_s([*names], by_pid_s, {15}) == (known, 1.5)
    # Of very many the last ones are known, and a pid may be used again.
    owners.find_owners([12] + [11] * MAX_PIDS)
    assert owners.busy_s(["chat"], {11: 1.0}, ()) == ({"chat": 1.0}, 0.0)
    comm(tmp_path, 11, "else")
    owners.find_owners([11])
    assert owners.busy_s(["chat"], {11: 1.0}, ()) == ({"chat": None}, 1.0)


def test_services_share_by_the_time_of_their_processes(tmp_path):
    for pid, name in ((1, "one"), (2, "two"), (3, "else")):
        comm(tmp_path, pid, name)
    both = [service(name, "gpu0", processes=[name]) for name in ("one", "two")]

    def shares(by_pid):
        bill = Bench(both, proc=tmp_path, by_pid=by_pid).bill()
        found = [cost_of(bill, device="gpu0", service=each.name) for each in both]
        return found, bill["gpu0"].allocation.problems.keys()

    assert shares({1: 3.0, 2: 1.0})[0] == pytest.approx([0.75 * WHOLE, 0.25 * WHOLE])
    # If all busy processes are those of services, the other service was idle.
    assert shares({1: 30.0})[0] == pytest.approx([WHOLE, 0])
    # The time of an unknown process is nobody's.
    assert shares({1: 2.0, 3: 2.0}) == ([0, 0], {"one", "two"})


def test_missing_divided_and_unpriced_devices_are_problems():
    devices = [*DEVICES, mig(0, 1), mig(1, 2)]
    bill = Bench([service("a", "gpu9", "gpu0")], devices).bill()
    assert "not a device of this host" in bill["gpu9"].allocation.problems["a"]
    assert "divided into MIG devices" in bill["gpu0"].allocation.problems["a"]
    # The cost of the board's unheld slices is still booked.
    assert cost_of(bill, device="gpu0", part="idle") == pytest.approx(4 / 7 * WHOLE)
    unpriced = Bench([service("a", "gpu0")], plans=[plan(device="gpu1")]).bill()
    assert unpriced["gpu0"].allocation.problems["a"].startswith("no price plan is for gpu0")
    assert cost_of(unpriced, device="gpu1") > 0


def test_idle_electricity_is_idle_power_over_idle_time():
    bench = Bench([service("a", "gpu0")])
    for at in range(10):
        fields = {"util_pct": 0.0, "power_w": 60.0, "energy_j": 600.0}
        since_ns = bench.end_ns + at * 10 * S
        bench.read(Reading("gpu0", since_ns, since_ns + 10 * S, fields))
    (idle,) = [line for line in bench.bill()["gpu0"].allocation.lines if line.part == "idle"]
    assert float(idle.hardware) == pytest.approx(0.6 * HELD)
    assert float(idle.energy) == pytest.approx(60 * 60.0 * 1e-7)


def test_energy_and_emissions_of_a_slice_are_its_share_of_the_board():
    bench = Bench([service("a", "gpu0.mig1")], [*DEVICES, mig(0, 1), mig(1, 3)])
    bill = bench.bill()["gpu0.mig1"]
    # 300 W for 100 s at 360 g/kWh are 3 g.
    assert bill.emitted.g == pytest.approx(3 * 3 / 7, rel=1e-6)
    assert (bill.drawn.energy_j, bill.drawn.scope) == (pytest.approx(30_000 * 3 / 7), "parent")
    assert bill.energy_shares == {"a": 1}


def test_energy_of_probing_is_the_measured_one_whatever_the_price():
    """A probe draws a third of the energy in a tenth of the time."""
    for prices in ({}, {"plans": [plan("0")], "per_kwh": "0"}):
        bench = Bench([service("chat", "gpu0", share=0.5)], **prices)
        for at in range(10, 20):
            since_ns = bench.start_ns + at * 10 * S
            fields = {"energy_j": 13_500.0 if at == 10 else 3000.0, "energy_method": "counter"}
            bench.read(Reading("gpu0", since_ns, since_ns + 10 * S, fields))
        begin_ns = bench.start_ns + 100 * S
        bench.runs.begin("gpu0", begin_ns)
        bench.runs.end("gpu0", begin_ns + 10 * S, ProbeFault("oom", "no memory", ()))
        bill = bench.costs.bill(begin_ns, begin_ns + 100 * S)["gpu0"]
        assert bill.energy_shares == pytest.approx({"chat": 1 / 3, "": 1 / 3})
        # Without a known energy there is nothing to divide.
        unread = bench.costs.bill(begin_ns, begin_ns + 300 * S)["gpu0"]
        assert (unread.drawn, unread.emitted, unread.energy_shares) == (None, None, {})
