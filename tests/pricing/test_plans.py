"""Reserved, spot and owned prices, by hand-computed examples."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from costprobe.configuration import AnyPlan
from costprobe.core.records import Device
from costprobe.pricing.book import PriceBook
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
MIG = Device("gpu0.mig0", "mig", "MIG-0", "H100 MIG", parent="gpu0", slices=3, slices_of=7)


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


class TestReserved:
    def test_after_the_term_the_list_price_applies_with_a_note(self):
        reserved = plan(**RESERVED)
        assert reserved.ends_ns == ns(2027, 1, 1)
        assert reserved.quote(ns(2027, 1, 1) - 1).plan == "reserved"
        quote = reserved.quote(ns(2027, 1, 1))
        assert (quote.plan, quote.per_hour) == ("on_demand", Decimal("2.00"))
        assert "ended on 2027-01-01" in quote.source
        book = PriceBook([reserved], None, GPUS[:1])
        assert book.terms("gpu0", ns(2027, 1, 2)).rate.plan == "on_demand"

    def test_effective_price_of_a_contract_replaces_its_discount(self):
        keys = {k: v for k, v in RESERVED.items() if k not in ("discount", "upfront")}
        quote = plan(**keys, effective_per_hour=Decimal("1.27")).quote(ns(2026, 6, 1))
        assert quote.per_hour == Decimal("1.27")

        def is_refused(key, value):
            changed = {k: v for k, v in {**RESERVED, key: value}.items() if v is not None}
            with pytest.raises(ValidationError):
                plan(**changed)

        wrong = [("effective_per_hour", 1), ("discount", 1), ("discount", -1)]
        check_all(
            is_refused, [*wrong, *((key, None) for key in ("discount", "valid_from", "term"))]
        )


class TestWhatAPriceIsFor:
    def test_price_may_be_per_device(self):
        book = PriceBook([plan(plan="on_demand", per_hour=Decimal(3), per="device")], None, GPUS)
        assert [book.terms(gpu.name, 0).rate.per_hour for gpu in GPUS] == [3, 3]

    def test_slice_and_board_may_have_their_own_prices(self):
        plans = [
            plan(plan="on_demand", per_hour=Decimal(7)),
            plan(plan="on_demand", per_hour=Decimal("0.6"), per="slice"),
        ]
        book = PriceBook(plans, None, [*GPUS, MIG])
        assert book.terms("gpu0.mig0", 0).rate.per_hour == Decimal("1.8")
        assert book.terms("gpu1", 0).rate.per_hour == Decimal("3.5")

    def test_plan_of_a_device_is_for_it_alone(self):
        for keys, words in (
            ({"host_overhead": Decimal("0.1")}, "host_overhead"),
            ({"per": "host"}, "remove per"),
        ):
            with pytest.raises(ValidationError, match=words):
                plan(plan="on_demand", per_hour=1, device="gpu0", **keys)


SPOT = {"plan": "spot", "file": "/prices.csv", "stale_after": "2h"}


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

    def test_older_plan_applies_before_the_first_price(self):
        plans = [
            plan(plan="on_demand", per_hour=Decimal(10)),
            plan(**SPOT, valid_from="2026-01-01"),
        ]
        book = PriceBook(plans, None, GPUS)
        assert book.terms("gpu0", ns(2026, 2, 1)).rate.per_hour == 5

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

    def test_repeated_current_price_is_not_stored_again(self):
        known = TimedValues()
        for now, amount in enumerate((2, 2, 2, 3, 3, 2)):
            known = known.updated([TimedValue(now, Decimal(amount))], now)
        assert [(p.time_ns, p.value) for p in known.values] == [(0, 2), (3, 3), (5, 2)]
        assert known.seen_ns == 5
