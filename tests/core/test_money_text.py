"""Amounts of money as text; the page's format.js is tested with the same cases."""

import json
from decimal import Decimal
from pathlib import Path

from costprobe.core.money import (
    PER_THOUSAND,
    field_text,
    is_amount,
    is_each,
    money,
)

CASES = json.loads((Path(__file__).parents[1] / "fakes" / "money_cases.json").read_text())


def test_amounts_have_four_digits_separators_and_currency():
    wrong = [
        (amount, currency, written)
        for amount, currency, expected in CASES["money"]
        for written in {money(amount, currency), money(Decimal(repr(amount)), currency)}
        if written != expected
    ]
    assert wrong == []


def test_fields_of_money_are_known():
    wrong = []
    for name, is_money, factor in CASES["fields"]:
        measurement, field = name.split(".")
        found_factor = PER_THOUSAND if is_each(measurement, field) else 1
        if (is_amount(measurement, field), found_factor) != (is_money, factor):
            wrong.append(name)
    assert wrong == []


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
        "cost_per_inference": "$41.71 per million",
        "cost_total": "€1,235",
        "power_w": "1,234.57",
    }
