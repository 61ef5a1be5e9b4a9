"""Amounts of money as text."""

import csv
import math
from decimal import Decimal
from pathlib import Path

from costprobe.core.money import (
    cents,
    cents_of_parts,
    common_scale,
    field_text,
    is_amount,
    is_each,
    money,
)
from costprobe.core.units import duration_words
from fakes.cases import check_all

# An amount, its currency, and its texts: with three digits, with two, and as people check it against a bill.
AMOUNTS = Path(__file__).with_name("amounts.csv")
# Amounts, those of one inference among them, and fields that are no amounts.
AMOUNTS_OF_ONE = ("cost_per_inference", "cost_hardware", "cost_per_request", "rolling_24h_iqr")
OTHER_AMOUNTS = (
    "cost.cost_total", "cost.cost_per_million_tokens_in", "allocation.cost_hardware", "device.cost",
    "device.price_rate_per_h", "budget.forecast_low",
)  # fmt: skip
NO_AMOUNTS = (
    "cost.rolling_24h_coverage", "cost.energy_per_request_j", "cost.idle_share", "device.power_w",
    "probe.latency_p50_ms",
)  # fmt: skip


def test_amounts_have_their_digits_separators_and_currency():
    def check(amount, currency, *texts):
        for one in (float(amount), Decimal(amount)):
            assert (money(one, currency), money(one, currency, 2), cents(one, currency)) == texts

    _, *cases = csv.reader(AMOUNTS.read_text().splitlines())
    check_all(check, map(tuple, cases))


def test_the_lowest_price_of_a_table_chooses_its_scale():
    cases = {
        (4.5e-10, None, 3.8e-4): 1_000_000,
        (3e-4, 0.0, 2.0): 1000,
        (0.2, 5.0): 1,
        (None,): 1_000_000,
    }
    assert {prices: common_scale(prices) for prices in cases} == cases


def test_durations_of_messages_have_two_units():
    cases = {0.35: "350 ms", 1.5: "1.5 s", 90: "1 min 30 s", 900: "15 min", 3599.8: "1 h",
             40_001: "11 h 7 min", 86_399: "1 d", 90_000: "1 d 1 h", 604_800: "7 d"}  # fmt: skip
    assert {duration_s: duration_words(duration_s) for duration_s in cases} == cases


def test_fields_of_money_are_known():
    of_one = {"sweep.cost_per_inference", *(f"cost.{name}" for name in AMOUNTS_OF_ONE)}
    fields = [name.split(".") for name in (*of_one, *OTHER_AMOUNTS, *NO_AMOUNTS)]
    assert {".".join(name) for name in fields if is_each(*name)} == of_one
    assert {".".join(name) for name in fields if is_amount(*name)} == of_one | {*OTHER_AMOUNTS}


def test_values_of_fields_are_written_with_their_unit():
    written = {
        field: field_text(measurement, field, value, currency)
        for measurement, field, value, currency in (
            ("cost", "cost_per_inference", 4.171e-05, "USD"),
            ("cost", "cost_total", 1234.56, "EUR"),
            ("device", "power_w", 1234.5678, ""),
        )
    }
    assert written == {
        "cost_per_inference": "$41.7 per million",
        "cost_total": "€1,230",
        "power_w": "1,234.57",
    }


def test_parts_are_written_so_that_they_add_up_to_their_total():
    """By largest remainder, with the digits of the total."""
    cases = {
        (1.004, 1.004, 1.004): ["$1.01", "$1.00", "$1.00"],
        (0.333, 0.333, 0.334, 9.0): ["$0.33", "$0.33", "$0.34", "$9.00"],
        (0.00123, 12.34567): ["$0.00", "$12.35"],
        (0.0012, 0.0695): ["$0.0012", "$0.0695"],
        (-0.006, -0.006, -1.0): ["$0.00", "-$0.01", "-$1.00"],
        (): [],
    }
    for parts, wanted in cases.items():
        assert cents_of_parts(parts, math.fsum(parts), "USD") == wanted
    assert cents_of_parts([Decimal("166.5")] * 2, 333, "JPY") == ["167 JPY", "166 JPY"]
