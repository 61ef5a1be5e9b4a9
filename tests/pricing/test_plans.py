"""Reserved, spot and owned prices, by hand-computed examples."""

import json
import re
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

    def test_price_responses_are_parsed(self):
        def is_parsed(text, prices):
            found = parse_spot(text, T * S, "USD")
            assert [(p.time_ns // S - T, str(p.value)) for p in found] == prices

        responses = [
            ("1.25", [(0, "1.25")]),
            (f"time,per_hour\n{T + 10},1.5\n{T + 20},1.75\n", [(10, "1.5"), (20, "1.75")]),
            (f"{T + 10},1.5\n{T + 20},1.75", [(10, "1.5"), (20, "1.75")]),
            ("zone,price,timestamp\na,2,2026-01-01T00:00:30Z", [(30, "2")]),
            (f"{T}000,2", [(0, "2")]),
            ("0.30", [(0, "0.30")]),
            ('{"price": 0.1, "unit": "USD/Hour", "currency": "usd"}', [(0, "0.1")]),
            ('[{"time": "2026-01-01T01:00:10+01:00", "per_hour": "4"}]', [(10, "4")]),
            ("[1.5]", [(0, "1.5")]),
            (
                '{"SpotPriceHistory": [{"SpotPrice": "3.21", "Timestamp": "2026-01-01T00:01:00"}]}',
                [(60, "3.21")],
            ),
            # As office programs write tables: their separators, decimal commas and empty cells.
            ("Time;Per_Hour;\r\n2026-01-01 00:00;3,21;\r\n\r\n", [(0, "3.21")]),
            ('time\tper_hour\n2026-01-01\t"3,21"\n', [(0, "3.21")]),
            ("per_hour;currency;unit\n3,21;USD;hour\n", [(0, "3.21")]),
        ]
        check_all(is_parsed, responses)

    def test_invalid_prices_are_rejected_with_line_and_fix(self):
        spot = '{"SpotPriceHistory": [%s]}'
        offer = '{"Timestamp": "2026-01-01T0%d:00:00Z", "SpotPrice": "1.2", "%s": "%s"}'
        wrong = {
            **dict.fromkeys(("", "  \n", "[]", ",", "time,per_hour\n"), "expected"),
            **dict.fromkeys(
                ("cheap", "-1", "NaN", "1e999999999", f"{T},x"), "is not a price: write"
            ),
            **dict.fromkeys(("{}", '{"time": 5}', '[{"price": null}]'), "per_hour, price"),
            **dict.fromkeys(("[", "[" * 5000), "JSON|deep"),
            **dict.fromkeys(("1e999999,1", "NaN,1", "-5,1"), "is not a time"),
            **dict.fromkeys(("a,b\n1", "yesterday,1"), "is not a time such as"),
            **dict.fromkeys(("0\r0", "1\n2", "[1, 2]"), "has no time; expected time,per_hour"),
            "\n".join(f"{T + i},1" for i in range(MAX_VALUES + 1)): "more than",
            # As office programs write them, or with another meaning.
            "3,21": "the time '3' is before 2000; write .* decimal point",
            "302,5": "the time '302' is before 2000",
            "1970-01-01T00:00:10Z,1": "is before 2000",
            "time;per_hour\n45805,58;3,21": "line 2: '45805,58' is not a time",
            "time,per_hour\n2026-01-01,3,21": "line 2: 3 cells, expected 2; write a decimal point",
            "time\tper_hour\n2026-01-01\t1,234": "line 2: '1,234' is not a price: .* thousands",
            "time;per_hour\n2026-01-01;1.234,56": "line 2: .* no thousands separator",
            "time,per_hour,note\n2026-01-01,1,x": "line 1: the column 'note' is unknown",
            "time,price,price\n2026-01-01,1,2": "line 1: the column 'price' .* occurs twice",
            "time,per_hour,currency\n2026-01-01,1,EUR": "line 2: .* in 'EUR', the plan in USD",
            "time,per_hour,unit\n2026-01-01,1,month": "line 2: unit is 'month'; convert .* hour",
            '{"price": 1, "unit": "second"}': "unit is 'second'; convert .* per hour",
            '{"price": 1, "unitOfMeasure": "EUR/h"}': "in 'EUR', the plan in USD",
            '{"price": {"price": 1, "currency": "EUR"}}': "in 'EUR', the plan in USD",
            spot
            % f"{offer % (1, 'AvailabilityZone', 'a')}, {offer % (2, 'AvailabilityZone', 'b')}": (
                "entry 2: availabilityzone is 'a' and 'b'; select one"
            ),
            spot % f"{offer % (1, 'ProductDescription', 'Linux/UNIX')},"
            f"{offer % (2, 'ProductDescription', 'Windows')}": "'Linux/UNIX' and 'Windows'",
        }

        def is_refused(text, problem):
            try:
                found = f"{parse_spot(text, 0, 'USD')}"
            except ValueError as error:
                found = f"{error}"
            assert re.search(problem, found), found

        check_all(is_refused, wrong.items())

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
