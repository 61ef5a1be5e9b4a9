"""Prices of a device-hour by plan and by date, by hand-computed examples."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from costprobe.configuration import AnyPlan
from costprobe.core.records import Device
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig, tariff_at
from costprobe.pricing.plans import parse_spot
from costprobe.pricing.timed import MAX_VALUES, TimedValue, TimedValues
from fakes.cases import check_all
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from record.record_files import check_outcomes

S = 10**9
# 2026-01-01.
T = 1_767_225_600
GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(2)]
SLICES = [
    Device(f"gpu0.mig{i}", "mig", f"MIG-{i}", "H100 MIG", parent="gpu0", slices=s, slices_of=of)
    for i, (s, of) in enumerate([(3, 7), (0, 0)])
]


def plan(**keys):
    return TypeAdapter(AnyPlan).validate_python(keys)


def ns(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * S


RESERVED = {
    "plan": "reserved",
    "per_hour": Decimal("2.00"),
    "discount": Decimal("0.40"),
    "upfront": Decimal(876),
    "term": "1y",
    "valid_from": "2026-01-01",
}


SPOT = {"plan": "spot", "file": "/prices.csv", "stale_after": "2h"}


def rented(per_hour, **more):
    return plan(plan="on_demand", per_hour=Decimal(per_hour), **more)


# Plans of a host with two GPUs, of which the first has slices, and the price of some of these.
PRICES = (
    ([rented(8), rented(3, device="gpu1")], {"gpu0": 4, "gpu1": 3}),
    ([rented(3, per="device")], {"gpu0": 3, "gpu1": 3}),
    (
        [rented(7), rented("0.6", per="slice")],
        {"gpu0.mig0": Decimal("1.8"), "gpu1": Decimal("3.5")},
    ),
    # The number of the other's slices is unknown.
    ([rented(7), rented(1, device="gpu0.mig0")], {"gpu0.mig0": 1, "gpu0.mig1": None}),
    # Before the first price of the spot plan.
    ([rented(10), plan(**SPOT, valid_from="2026-01-01")], {"gpu0": 5}),
)


def test_price_is_that_of_the_plan_for_a_device():
    def check(plans, prices):
        for name, wanted in prices.items():
            devices = [*GPUS, *(each for each in SLICES if "mig" in "".join(prices))]
            terms = PriceBook(plans, None, devices).terms(name, ns(2026, 2, 1))
            assert (terms and terms.rate.per_hour) == wanted, name

    check_all(check, PRICES)


def test_after_the_term_of_a_reservation_the_list_price_applies_with_a_note():
    reserved = plan(**RESERVED)
    assert reserved.ends_ns == ns(2027, 1, 1)
    assert reserved.quote(ns(2027, 1, 1) - 1).plan == "reserved"
    quote = reserved.quote(ns(2027, 1, 1))
    assert (quote.plan, quote.per_hour) == ("on_demand", Decimal("2.00"))
    assert "ended on 2027-01-01" in quote.source
    book = PriceBook([reserved], None, GPUS[:1])
    assert book.terms("gpu0", ns(2027, 1, 2)).rate.plan == "on_demand"
    # The effective price of a contract replaces its discount.
    effective = {**RESERVED, "discount": None, "upfront": None, "effective_per_hour": "1.27"}
    quote = plan(**{k: v for k, v in effective.items() if v is not None}).quote(ns(2026, 6, 1))
    assert quote.per_hour == Decimal("1.27")


def test_keys_that_contradict_each_other_are_refused():
    def is_refused(keys, words="."):
        with pytest.raises(ValidationError, match=words):
            plan(**{k: v for k, v in keys.items() if v is not None})

    wrong = [("effective_per_hour", 1), ("discount", 1), ("discount", -1)]
    missing = [(key, None) for key in ("discount", "valid_from", "term")]
    of_one = {"plan": "on_demand", "per_hour": 1, "device": "gpu0"}
    check_all(
        is_refused,
        [
            *({**RESERVED, key: value} for key, value in (*wrong, *missing)),
            ({**of_one, "host_overhead": Decimal("0.1")}, "host_overhead"),
            ({**of_one, "per": "host"}, "remove per"),
        ],
    )


def test_past_samples_keep_the_tariff_of_their_day():
    earlier = [
        {"until": "2026-01-01", "tariff_per_kwh": Decimal("0.20"), "pue": Decimal(2)},
        {"until": "2025-01-01", "tariff_per_kwh": Decimal("0.10")},
    ]
    tariff = ElectricityConfig.model_validate(
        {"tariff_per_kwh": Decimal("0.30"), "earlier": earlier}
    )
    days = ((2024, 12, 31), (2025, 1, 1), (2025, 12, 31), (2026, 1, 1))
    metered = [tariff_at(tariff, ns(*day, 12)).metered_per_kwh for day in days]
    assert metered == [Decimal(text) for text in ("0.1", "0.4", "0.4", "0.3")]
    assert tariff_at(tariff, ns(2025, 6, 1)).per_kwh == Decimal("0.2")
    earlier[1]["until"] = "2026-01-01"
    with pytest.raises(ValidationError, match="give each a different until"):
        ElectricityConfig.model_validate({"tariff_per_kwh": 1, "earlier": earlier})


class TestSpot:
    def test_last_known_price_applies_until_stale(self):
        known = TimedValues(
            (TimedValue(ns(2026, 1, 1), Decimal(2)), TimedValue(ns(2026, 1, 2), Decimal(3))),
            seen_ns=ns(2026, 1, 2, 6),
        )
        book = PriceBook([plan(**SPOT)], None, GPUS, spots=lambda: {"spot": known})

        def rate(*when):
            terms = book.terms("gpu0", ns(*when))
            return terms and (terms.rate.per_hour, terms.rate.is_stale)

        assert rate(2025, 12, 31) is None
        assert rate(2026, 1, 1, 12) == (1, False)
        assert rate(2026, 1, 2, 7) == (Decimal("1.5"), False)
        assert rate(2026, 1, 2, 9) == (Decimal("1.5"), True)
        assert "stale" in book.terms("gpu0", ns(2026, 1, 2, 9)).rate.source

    def test_price_texts_are_parsed_or_rejected_with_line_and_fix(self):
        """The record has the seconds since T and price of each, or the error; see `record_files`."""

        def prices_of(text):
            return [[p.time_ns // S - T, str(p.value)] for p in parse_spot(text, T * S, "USD")]

        check_outcomes("price_texts.json", prices_of)
        many = "\n".join(f"{T + i},1" for i in range(MAX_VALUES + 1))
        for text, problem in (("[" * 5000, "JSON|deep"), (many, "more than")):
            with pytest.raises(ValueError, match=problem):
                prices_of(text)

    @given(st.text(max_size=300))
    def test_any_text_gives_prices_or_an_error(self, text):
        try:
            found = parse_spot(text, 5)
        except ValueError:
            return
        assert found
        assert all(price.value >= 0 for price in found)

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=60))
    def test_updates_may_arrive_in_any_order(self, entries):
        known = TimedValues()
        for when, amount in entries:
            known = known.updated([TimedValue(when, Decimal(amount))], 100)
        truth = dict(entries)
        for at in range(51):
            last = max((when for when in truth if when <= at), default=None)
            price = known.at(at)
            assert (price and price.value) == (None if last is None else truth[last])
        assert TimedValues.from_document(json.loads(json.dumps(known.to_document()))) == known
