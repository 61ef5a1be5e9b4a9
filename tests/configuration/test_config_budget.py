"""Budgets in the configuration: scope, amounts and errors."""

from decimal import Decimal
from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError

DAY = '[[budget]]\nname = "a"\namount = 12.345678901\nperiod = "day"\n'
PRICE = '[[price]]\nplan = "on_demand"\nper_hour = 2\ncurrency = "EUR"\n'


def problems(text):
    with pytest.raises(ConfigError) as caught:
        parse(text, Path("f"))
    return "\n".join(caught.value.problems)


def test_budget_is_exact_and_covers_the_host_by_default():
    (budget,) = parse(DAY.replace("12.345678901", "12.34567890"), Path("f")).budget
    assert budget.amount == Decimal("12.34567890")
    assert (budget.scope, budget.currency, budget.timezone) == ("host", "USD", "UTC")
    service = '[[service]]\nname = "x"\nurl = "http://h"\nengine = "vllm"\ndevices = ["cpu"]\n'
    for key, scope in (("device", "x"), ("service", "service x")):
        (budget,) = parse(f'{DAY}{key} = "x"\n{service}', Path("f")).budget
        assert budget.scope == scope


def test_budget_in_a_currency_without_prices_is_rejected():
    rule = '[[rule]]\nname = "r"\nkind = "budget"\namount = 5\n'
    found = problems(PRICE + DAY + rule)
    assert "budget[0].currency: prices are in EUR, and USD is never added" in found
    assert "rule[0].currency: prices are in EUR" in found
    good = 'currency = "EUR"\n'
    assert parse(PRICE + DAY + good + rule + good, Path("f")).budget[0].currency == "EUR"


def test_too_many_digits_and_unknown_keys_are_reported():
    assert "budget[0].amount" in problems(DAY.replace("12.345678901", "1.0123456789"))
    assert 'budget[0].amout: unknown key; did you mean "amount"?' in problems(DAY + "amout = 1\n")
