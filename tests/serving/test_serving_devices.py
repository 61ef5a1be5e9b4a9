"""Devices billed over a window: probing, sharing and MIG; lines sum to the cost."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.clock import utc_ns
from costprobe.core.records import (
    NS_PER_S,
    Device,
    Reading,
)
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
    Surroundings,
    grouped,
)
from fakes.clock import FakeClock
from fakes.runs import probe_run
from fakes.services import service
from hypothesis import given
from hypothesis import strategies as st

S = NS_PER_S
BOARDS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in (0, 1)]


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
        self,
        services,
        devices=BOARDS,
        plans=None,
        proc=None,
        by_pid=None,
        util_pct=40.0,
        *,
        per_kwh="0.36",
    ):
        self.clock = FakeClock()
        self.start_ns = self.clock.monotonic_ns()
        self.runs = ProbeRuns()
        self.log = DeviceLog(300)
        self.owners = ProcessOwners(services, proc)
        tariff = ElectricityConfig(tariff_per_kwh=Decimal(per_kwh))
        self.book = PriceBook([plan()] if plans is None else plans, tariff, devices)
        self.charges = DeviceCharges(self.book, 300)
        around = Surroundings(
            charges=self.charges,
            runs=self.runs,
            clock=self.clock,
            tags={},
            ledger=MemoryLedger(),
            on_event=lambda _: None,
            store_path=Path("/nowhere"),
            carbon=CarbonBook(CarbonConfig(g_per_kwh=Decimal(360)), tariff, devices),
        )
        claimants = [Claimant.of(each) for each in services]
        self.costs = DeviceCosts(devices, claimants, around, self.log, self.owners)
        self.clock.move(100)
        self.end_ns = self.clock.monotonic_ns()
        for at in range(10):
            for device in devices:
                fields = {
                    "energy_j": 3000.0,
                    "energy_method": "counter",
                    "util_pct": util_pct,
                    "power_w": 300.0,
                }
                since_ns = self.start_ns + at * 10 * S
                if device.kind == "mig":
                    fields = {"mem_used_bytes": 1}
                self.read(Reading(device.name, since_ns, since_ns + 10 * S, fields, by_pid), device)
        if by_pid:
            self.owners.find_owners(by_pid)

    def read(self, reading, device=BOARDS[0]):
        self.log.record(reading)
        charged = self.charges.charge([(reading, device)], utc_ns(self.clock, 0))
        self.charges.keep(charged)
        return charged

    def bill(self):
        return self.costs.bill(self.start_ns, self.end_ns)


def test_electricity_below_zero_is_allocated_like_any_other():
    for devices, name in ((BOARDS, "gpu0"), ([*BOARDS, mig(0, 1), mig(1, 3)], "gpu0.mig1")):
        lines, mirrored = (
            [
                line
                for found in Bench([service("a", name)], devices, per_kwh=per_kwh).bill().values()
                for line in found.allocation.lines
            ]
            for per_kwh in ("-0.72", "0.72")
        )
        # Two boards of 300 W for 100 s.
        assert float(sum(line.energy for line in lines)) == pytest.approx(-0.012)
        assert [(line.service, line.part, line.hardware, -line.energy) for line in lines] == [
            (line.service, line.part, line.hardware, line.energy) for line in mirrored
        ]


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
    assert cost_of(bill, device="gpu0", part="probing") == pytest.approx(0.1 * (HELD + DRAWN))
    assert cost_of(bill, device="gpu0", service="chat") == pytest.approx(0.9 * (HELD + DRAWN))
    assert bill["gpu0"].energy_shares == pytest.approx({"chat": 0.9})
    # The time before the window belongs to another window.
    later = bench.costs.bill(bench.start_ns + 40 * S, bench.end_ns)
    assert cost_of(later, device="gpu0", part="probing") == pytest.approx(0.05 * (HELD + DRAWN))


def comm(proc, pid, name):
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")


def test_services_share_by_process_time_including_ended_processes(tmp_path):
    for pid, name in ((1, "one"), (2, "two"), (3, "else")):
        comm(tmp_path, pid, name)
    both = [service(name, "gpu0", processes=[name]) for name in ("one", "two")]
    bench = Bench(both, proc=tmp_path, by_pid={1: 3.0, 2: 1.0})
    (tmp_path / "2" / "comm").unlink()
    (tmp_path / "2").rmdir()
    bench.owners.find_owners({1: 3.0, 2: 1.0})
    bill = bench.bill()
    assert cost_of(bill, device="gpu0", service="one") == pytest.approx(0.75 * (HELD + DRAWN))
    assert cost_of(bill, device="gpu0", service="two") == pytest.approx(0.25 * (HELD + DRAWN))
    # The time of an unknown process is unallocated.
    shared = Bench(both, proc=tmp_path, by_pid={1: 2.0, 3: 2.0})
    comm(tmp_path, 2, "two")
    shared.owners.find_owners({1: 2.0, 2: 0.0, 3: 2.0})
    problems = shared.bill()["gpu0"].allocation.problems
    assert "set share" in problems["two"]
    # If all busy processes are those of services, the other service was idle.
    idle = Bench(both, proc=tmp_path, by_pid={1: 30.0}).bill()
    assert cost_of(idle, device="gpu0", service="one") == pytest.approx(HELD + DRAWN)
    assert cost_of(idle, device="gpu0", service="two") == 0


def test_services_whose_processes_have_one_name_share_in_unknown_proportions(tmp_path):
    for pid in (1, 2):
        comm(tmp_path, pid, "VLLM::EngineCor")
    names = {"processes": ["VLLM::EngineCore"]}
    found = []
    for shares in ({}, {"one": 0.7, "two": 0.3}):
        both = [service(n, "gpu0", share=shares.get(n), **names) for n in ("one", "two")]
        bill = Bench(both, proc=tmp_path, by_pid={1: 30.0, 2: 10.0}).bill()
        problems = bill["gpu0"].allocation.problems
        found.append([cost_of(bill, device="gpu0", service=n) for n in ("one", "two")])
        assert set(problems) == {"one", "two"} - set(shares)
    assert found == [[0, 0], pytest.approx([0.7 * (HELD + DRAWN), 0.3 * (HELD + DRAWN)])]


def test_busy_time_is_that_of_services_by_the_truncated_names_of_their_processes(tmp_path):
    for pid, name in {11: "VLLM::EngineCor", 12: "python3", 13: "tritonserver", 15: "own"}.items():
        comm(tmp_path, pid, name)
    processes = {"chat": ["VLLM::EngineCore"], "rank": ["tritonserver"], "gone": ["other"]}
    services = [service(name, processes=names) for name, names in processes.items()]
    owners = ProcessOwners(services, tmp_path)
    owners.find_owners([11, 12, 13, 14])
    by_pid_s = {11: 10.0, 12: 1.0, 13: 5.0, 14: 0.5, 15: 2.0}
    found = owners.busy_s([*processes], by_pid_s, {15})
    assert found == ({"chat": 10.0, "rank": 5.0, "gone": None}, 1.5)
    # Of very many the last ones are known, and a pid may be used again.
    owners.find_owners([12] + [11] * MAX_PIDS)
    assert owners.busy_s(["chat"], {11: 1.0}, ()) == ({"chat": 1.0}, 0.0)
    comm(tmp_path, 11, "else")
    owners.find_owners([11])
    assert owners.busy_s(["chat"], {11: 1.0}, ()) == ({"chat": None}, 1.0)


def test_missing_divided_and_unpriced_devices_are_problems():
    devices = [*BOARDS, mig(0, 1), mig(1, 2)]
    bill = Bench([service("a", "gpu9", "gpu0")], devices).bill()
    assert "not a device of this host" in bill["gpu9"].allocation.problems["a"]
    assert "divided into MIG devices" in bill["gpu0"].allocation.problems["a"]
    # The cost of the board's unheld slices is still booked.
    assert cost_of(bill, device="gpu0", part="idle") == pytest.approx(4 / 7 * (HELD + DRAWN))
    unpriced = Bench([service("a", "gpu0")], plans=[plan(device="gpu1")]).bill()
    assert unpriced["gpu0"].allocation.problems["a"].startswith("no price plan is for gpu0")
    assert cost_of(unpriced, device="gpu1") > 0


def test_mig_devices_priced_by_slice_are_allocated_their_electricity():
    devices = [*BOARDS, mig(0, 1), mig(1, 2)]
    sliced = plan("0.36", per="slice")
    bill = Bench([service("a", "gpu0.mig1")], devices, plans=[sliced]).bill()
    wanted = 2 * 0.36 * 100 / 3600 + 2 / 7 * DRAWN
    assert cost_of(bill, device="gpu0.mig1", service="a") == pytest.approx(wanted)
    assert bill["gpu0.mig1"].allocation.problems == {}


def test_time_without_readings_is_a_problem_and_only_what_was_charged_is_allocated():
    bench = Bench([service("a", "gpu0")])
    bill = bench.costs.bill(bench.start_ns - 60 * S, bench.end_ns)
    assert cost_of(bill, device="gpu0") == pytest.approx(HELD + DRAWN)
    assert "was not measured all the time" in bill["gpu0"].allocation.problems["a"]


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
    bench = Bench([service("a", "gpu0.mig1")], [*BOARDS, mig(0, 1), mig(1, 3)])
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


@given(
    st.lists(st.floats(0.01, 0.4), min_size=0, max_size=2),
    st.lists(st.tuples(st.integers(0, 99), st.floats(0, 30)), max_size=4),
    st.floats(0, 100),
    st.integers(1, 100),
    st.booleans(),
)
def test_lines_sum_to_the_cost_of_the_device(shares, runs, util_pct, length_s, divided):
    devices = [*BOARDS, mig(0, 1), mig(1, 3)] if divided else BOARDS
    name = "gpu0.mig1" if divided else "gpu0"
    services = [service(f"s{i}", name, share=share) for i, share in enumerate(shares)]
    bench = Bench(services, devices, util_pct=util_pct)
    for at, busy_s in runs:
        since_ns = bench.start_ns + at * S
        bench.runs.begin(name, since_ns)
        until_ns = since_ns + int(busy_s * S)
        bench.runs.end(name, until_ns, outcome(since_ns, until_ns, busy_s))
    end_ns = bench.start_ns + length_s * S
    bill = bench.costs.bill(bench.start_ns, end_ns)
    charged = [
        charge
        for device in devices
        for charge in bench.charges.between(device.name, bench.start_ns, end_ns)
    ]
    wanted = sum(Fraction(charge.cost) for charge in charged)
    assert float(wanted) == pytest.approx(2 * (HELD + DRAWN) * length_s / 100)
    lines = [line for found in bill.values() for line in found.allocation.lines]
    assert sum(Fraction(line.cost) for line in lines) == wanted


def test_services_that_share_a_board_are_one_group():
    devices = [*BOARDS, mig(0, 1), mig(1, 2), Device("gpu2", "gpu", "GPU-2", "GPU")]
    services = [
        service("a", "gpu0.mig0"),
        service("b", "gpu1"),
        service("c", "gpu0.mig1", "gpu1"),
        service("d", "gpu9"),
    ]
    found = [
        ({each.name for each in group.claimants}, {device.name for device in group.devices})
        for group in grouped([Claimant.of(each) for each in services], devices)
    ]
    assert found == [
        ({"a", "b", "c"}, {"gpu0", "gpu0.mig0", "gpu0.mig1", "gpu1"}),
        ({"d"}, set()),
        (set(), {"gpu2"}),
    ]
