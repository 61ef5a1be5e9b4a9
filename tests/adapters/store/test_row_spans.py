"""Rows that were rolled up give readers the same sums, coverage and advice as before."""

import time
from contextlib import closing
from statistics import fmean

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import compact
from costprobe.adapters.store.write import Store
from costprobe.core.periods import TimeSpan
from costprobe.core.records import Point
from costprobe.savings.gather import history_of
from costprobe.savings.workload import measured_load
from costprobe.spend.query import SpendBook
from costprobe.ui.cli.support.command_prices import savings_sections, stored_prices
from costprobe.ui.cli.support.place import Settings
from fakes.clock import FakeClock

S = 10**9
HOUR_NS = 3600 * S
DAYS = 3
# The fourth hour of each day has no row.
OFF_HOUR = 3


def rows_of(last_ns, step_s):
    """Three days of a device at 3.6 an hour, twice as busy in odd hours, and its allocation."""
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-0", "model": "L4", "currency": "USD"}
    shared = {"device": "gpu0", "service": "chat", "part": "held", "currency": "USD"}
    for end_ns in range(last_ns - DAYS * 24 * HOUR_NS, last_ns + 1, step_s * S):
        hour = (end_ns - 1) // HOUR_NS
        if hour % 24 == OFF_HOUR:
            continue
        fields = {"cost": 0.001 * step_s, "util_pct": 40.0 + 40 * (hour % 2), "power_w": 100.0}
        yield Point("device", tags, fields, end_ns)
        if (end_ns // S) % 300 == 0:
            yield Point("allocation", shared, {"cost": 0.3}, end_ns)


def figures(folder, config, last_ns):
    """Return spend and coverage of each payer, and the hours of the advisors."""
    span = TimeSpan(last_ns - DAYS * 24 * HOUR_NS, last_ns)
    book = SpendBook()
    with closing(StoreReader.open(folder / "costprobe.db")) as reader:
        book.read(reader, last_ns + S, 10.0)
        settings = Settings(str(config))
        sections, prices = savings_sections(settings.config), stored_prices(settings)
        past = history_of(sections, prices, reader, span.start_ns, ()).devices["gpu0"]
    paid = {payer: book.between(payer, span) for payer in book.payers}
    return paid, past


def load_of(history):
    """The mean number of busy devices, and that of the highest minute."""
    hours = measured_load([history], (), None, idle_pct=1.0).values()
    return fmean(hour.mean for hour in hours), max(hour.peak for hour in hours)


@pytest.mark.parametrize("step_s", [30, 300])
def test_sums_coverage_and_advice_are_the_same_after_compaction(tmp_path, step_s):
    last_ns = time.time_ns() // HOUR_NS * HOUR_NS
    config = tmp_path / "costprobe.toml"
    config.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n'
        '[[price]]\nplan = "on_demand"\nper_hour = 3.6\n'
    )
    store = Store.open(tmp_path / "costprobe.db", FakeClock())
    store.append(list(rows_of(last_ns, step_s)))
    store.close()
    paid, past = figures(tmp_path, config, last_ns)
    ages = KeepSince(last_ns - 12 * HOUR_NS, last_ns - 36 * HOUR_NS, 0, 0)
    compact(tmp_path / "costprobe.db", ages, FakeClock())
    paid_after, past_after = figures(tmp_path, config, last_ns)
    # By hand: 23 hours a day at 3.6, all of them covered.
    for payer, spent in paid.items():
        assert spent.cost == pytest.approx(DAYS * 23 * 3.6, rel=0.002)
        assert spent.covered_s == pytest.approx(DAYS * 23 * 3600, rel=0.002)
        assert tuple(paid_after[payer]) == pytest.approx(tuple(spent), rel=0.005)
    assert len(paid) == 2
    load, load_after = load_of(past), load_of(past_after)
    assert load == pytest.approx(((12 * 40 + 11 * 80) / 23 / 100, 0.8), abs=0.005)
    assert load_after == pytest.approx(load, abs=0.005)
    assert len(past_after.known_hours) == pytest.approx(len(past.known_hours), abs=1)
