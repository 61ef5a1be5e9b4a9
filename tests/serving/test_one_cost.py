"""Rows of `device`, their allocation and budgets are one amount: that of a ledger by hand.

The wall clock may be stepped between two readings.
"""

from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.readings import Accounts
from costprobe.devices.use import DeviceLog
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan
from costprobe.pricing.prices import RememberedPrices
from costprobe.serving.device_costs import Claimant, DeviceCosts, ProcessOwners
from costprobe.serving.service import ServingGroup
from costprobe.spend.query import SpendBook
from fakes.clock import FakeClock
from fakes.services import service
from fakes.serving_bench import DEVICES, surroundings
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

S = NS_PER_S
HOUR = 3600
# Two minutes before midnight: plans change with the day, and the tariff a minute after it, to less than nothing.
MIDNIGHT_NS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * S
START_NS = MIDNIGHT_NS - 120 * S
DAY_PER_HOUR = {1: 36, 2: 72}
TARIFF_CHANGE_NS = MIDNIGHT_NS + 60 * S
TARIFFS = (Fraction(36, 100), Fraction(-90, 100))


def plans(unit):
    keys = {"plan": "on_demand", "per": unit, "electricity_included": False}
    return [
        OnDemandPlan(**keys, per_hour=Decimal(per_hour), valid_from=date(2026, 3, day))
        for day, per_hour in DAY_PER_HOUR.items()
    ]


TARIFF = ElectricityConfig.model_validate(
    {
        "tariff_per_kwh": "-0.90",
        "hours": [{"start": "12:00", "end": "00:01", "tariff_per_kwh": "0.36"}],
    }
)


class Ledger:
    """A host whose prices change at midnight; what it cost, by hand and by the program."""

    def __init__(self, folder, unit, slices):
        self.unit, self.slices = unit, slices
        mig = [
            Device(f"gpu0.mig{i}", "mig", f"MIG-{i}", "MIG", None, "gpu0", held, 7)
            for i, held in enumerate(slices)
        ]
        self.devices = [*DEVICES, *mig]
        self.clock = FakeClock(START_NS)
        self.offset_ns = START_NS - self.clock.monotonic_ns()
        self.store = Store.open(folder / "costprobe.db", self.clock)
        book = PriceBook(plans(unit), TARIFF, self.devices)
        self.charges = DeviceCharges(book, 60.0)
        ledger = StoreLedger(self.store)
        self.accounts = Accounts(
            RememberedPrices(book, ledger, self.clock), ledger, self.clock, {}, charges=self.charges
        )
        used = mig[0].name if mig else "gpu0"
        chat = service("chat", used, share=0.3)
        around = surroundings(self.charges, self.clock, ledger, store_path=self.store.path)
        owners = ProcessOwners([chat], folder)
        claimants = [Claimant.of(chat)]
        costs = DeviceCosts(self.devices, claimants, around, DeviceLog(60.0), owners)
        self.group = ServingGroup(costs, around, window_s=60.0, patience_s=600.0)
        self.wanted = Fraction(0)
        self.newest_ns = START_NS

    def step(self, duration_s):
        """Step the wall clock, between two readings."""
        self.clock.step(duration_s)
        self.offset_ns += duration_s * S

    def read(self, start_ns, end_ns, energies_j, order):
        """Add a reading of every device in an interval, in one order or one by one."""
        readings = []
        for device in self.devices:
            fields = {"energy_j": energies_j[device.name]} if device.is_board else {}
            readings.append((Reading(device.name, start_ns, end_ns, fields), device))
        readings.sort(key=lambda each: each[1].is_slice, reverse=order != "boards first")
        if order == "apart":
            for each in readings:
                self.accounts.record_readings([each])
        else:
            self.accounts.record_readings(readings)
        self.newest_ns = max(self.newest_ns, self.clock.time_ns())
        self.wanted += self._by_hand(start_ns + self.offset_ns, end_ns + self.offset_ns, energies_j)

    def _by_hand(self, start_ns, end_ns, energies_j):
        cuts = [start_ns, *(t for t in (MIDNIGHT_NS, TARIFF_CHANGE_NS) if start_ns < t < end_ns)]
        total = Fraction(0)
        for since_ns, until_ns in zip(cuts, [*cuts[1:], end_ns], strict=True):
            share = Fraction(until_ns - since_ns, end_ns - start_ns)
            tariff = TARIFFS[since_ns >= TARIFF_CHANGE_NS]
            drawn = [Fraction(energies_j[board.name]) for board in DEVICES]
            if self.unit == "slice":
                # Nothing prices gpu1, nor gpu0 without a slice.
                drawn = drawn[:1] if self.slices else []
            units = {"host": 1, "device": 2, "slice": sum(self.slices)}[self.unit]
            per_hour = DAY_PER_HOUR[2 if since_ns >= MIDNIGHT_NS else 1] * units
            total += Fraction(per_hour * (until_ns - since_ns), HOUR * S)
            total += sum(drawn) * share * tariff / 3_600_000
        return total

    def rows(self, measurement):
        with closing(StoreReader.open(self.store.path)) as reader:
            return list(reader.points(measurement, 0, 2**62))

    def budgets(self):
        book = SpendBook()
        with closing(StoreReader.open(self.store.path)) as reader:
            book.read(reader, self.newest_ns + S, 10.0)
        span = TimeSpan(START_NS - HOUR * S, self.newest_ns + S)
        paid = {payer: book.between(payer, span).cost for payer in book.payers}
        of_devices = sum(cost for payer, cost in paid.items() if not payer.service)
        return of_devices, sum(cost for payer, cost in paid.items() if payer.service == "chat")


# Rows of whole intervals have the times of earlier ones once the wall clock was set back.
interval = st.tuples(
    st.sampled_from([0, 0, 0, 0, -20, -10, 30]),
    st.one_of(st.just(10_000), st.integers(200, 20_000)),
    st.floats(0, 10_000),
    st.floats(0, 10_000),
    st.sampled_from(["boards first", "slices first", "apart"]),
    st.booleans(),
)


# All windows of the service lie in one hour, and there are more than 12 of them.
MANY_WINDOWS = [(0, 8_000, 1000.0, 500.0, "apart", True)] * 13


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@example("host", (3, 2), MANY_WINDOWS)
@given(
    st.sampled_from(["host", "device", "slice"]),
    st.sampled_from([(), (7,), (3, 2), (1, 1, 1, 4)]),
    st.lists(interval, min_size=1, max_size=25),
)
def test_devices_allocation_and_budgets_are_the_ledger_by_hand(
    tmp_path_factory, unit, slices, intervals
):
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), unit, slices)
    for step_s, length_ms, first_j, second_j, order, closes in intervals:
        ledger.step(step_s)
        start_ns = ledger.clock.monotonic_ns()
        ledger.clock.move(length_ms / 1000)
        energies_j = {"gpu0": first_j, "gpu1": second_j}
        ledger.read(start_ns, ledger.clock.monotonic_ns(), energies_j, order)
        if closes:
            ledger.group.close_window()
    ledger.accounts.close()
    ledger.group.stop()
    of_devices = ledger.rows("device")
    allocated = ledger.rows("allocation")
    of_chat = [row for row in allocated if row.tags.get("service") == "chat"]
    budget, budget_of_chat = ledger.budgets()
    ledger.store.close()
    wanted = pytest.approx(float(ledger.wanted), rel=1e-9, abs=1e-15)
    assert sum(row.fields.get("cost", 0.0) for row in of_devices) == wanted
    assert sum(row.fields["cost"] for row in allocated) == wanted
    assert budget == wanted
    chat = sum(row.fields["cost"] for row in of_chat)
    assert budget_of_chat == pytest.approx(chat, rel=1e-9)
