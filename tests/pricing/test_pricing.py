"""The price of a device-hour, by hand-computed examples."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from costprobe.core.records import Device
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig, tariff_at
from costprobe.pricing.plans import OnDemandPlan, OwnedPlan
from pydantic import ValidationError

GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(4)]
CPU = Device("cpu", "cpu", "cpu", "a CPU")


def on_demand(per_hour, **more):
    return OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": per_hour, **more})


def owned(**more):
    return OwnedPlan.model_validate({"plan": "owned", **more})


def per_hour_of(plan, time_ns=0):
    return plan.quote(time_ns).per_hour


def ns(year, month, day):
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp()) * 10**9


def test_owned_price_has_depreciation_and_monthly_costs():
    # (30,000 - 6,000) / 43,800 h + 146 / 730 h = 0.547945... + 0.2
    server = owned(
        purchase_price=Decimal(30000),
        residual_value=Decimal(6000),
        lifetime="5y",
        monthly_costs=Decimal(146),
    )
    assert round(per_hour_of(server), 6) == Decimal("0.747945")


def test_host_plan_is_divided_among_accelerators_only():
    book = PriceBook([on_demand(Decimal("8.00"))], None, [*GPUS, CPU])
    assert book.terms("gpu2", ns(2026, 1, 1)).rate.per_hour == 2
    assert book.terms("cpu", ns(2026, 1, 1)) is None


def test_host_plan_applies_to_the_cpu_without_accelerators():
    book = PriceBook([on_demand(Decimal("0.5"))], None, [CPU])
    assert book.terms("cpu", ns(2026, 1, 1)).rate.per_hour == Decimal("0.5")


def test_device_plan_precedes_the_host_plan():
    book = PriceBook([on_demand(Decimal(8)), on_demand(Decimal(3), device="gpu1")], None, GPUS)
    assert book.terms("gpu0", ns(2026, 1, 1)).rate.per_hour == 2
    assert book.terms("gpu1", ns(2026, 1, 1)).rate.per_hour == 3


def test_past_samples_keep_the_price_of_their_day():
    book = PriceBook(
        [
            on_demand(Decimal(4), valid_from=date(2026, 6, 1)),
            on_demand(Decimal(8), valid_from=date(2026, 1, 1)),
        ],
        None,
        GPUS[:1],
    )
    assert book.terms("gpu0", ns(2025, 12, 31)) is None
    assert book.terms("gpu0", ns(2026, 5, 31)).rate.per_hour == 8
    assert book.terms("gpu0", ns(2026, 6, 1)).rate.per_hour == 4


def test_electricity_is_added_only_if_the_plan_excludes_it():
    # 0.30 x 1.2 = 0.36 a kWh = 1e-7 a joule.
    tariff = ElectricityConfig(tariff_per_kwh=Decimal("0.30"), pue=Decimal("1.2"))
    rented = PriceBook([on_demand(Decimal(1))], tariff, [CPU])
    bought = PriceBook([owned(purchase_price=Decimal(8760), lifetime="1y")], tariff, [CPU])
    assert rented.terms("cpu", ns(2026, 1, 1)).electricity_per_j == 0
    assert bought.terms("cpu", ns(2026, 1, 1)).electricity_per_j == pytest.approx(1e-7)


def test_hourly_tariff_follows_local_time():
    tariff = ElectricityConfig.model_validate(
        {
            "tariff_per_kwh": Decimal("0.20"),
            "timezone": "Europe/Berlin",
            "hours": [
                {"days": ["mon"], "start": "17:00", "end": "20:00", "tariff_per_kwh": "0.50"},
                {"start": "17:00", "end": "20:00", "tariff_per_kwh": "0.40"},
                {"days": ["sun"], "start": "12:00", "end": "15:00", "tariff_per_kwh": "-0.05"},
            ],
        }
    )
    book = PriceBook([on_demand(Decimal(1), electricity_included=False)], tariff, GPUS[:1])

    def per_kwh(*when):
        time_ns = int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000_000
        return book.terms("gpu0", time_ns).electricity_per_j * 3.6e6

    assert per_kwh(2026, 3, 2, 12) == pytest.approx(0.20)
    assert per_kwh(2026, 3, 2, 16) == pytest.approx(0.50)  # a Monday
    assert per_kwh(2026, 3, 1, 12) == pytest.approx(-0.05)
    assert per_kwh(2026, 3, 3, 18, 59) == pytest.approx(0.40)
    assert per_kwh(2026, 3, 3, 19) == pytest.approx(0.20)


def test_past_samples_keep_the_tariff_of_their_day():
    tariff = ElectricityConfig.model_validate(
        {
            "tariff_per_kwh": Decimal("0.30"),
            "earlier": [
                {"until": "2026-01-01", "tariff_per_kwh": Decimal("0.20"), "pue": Decimal(2)},
                {"until": "2025-01-01", "tariff_per_kwh": Decimal("0.10")},
            ],
        }
    )

    def per_kwh(*day):
        return tariff_at(tariff, ns(*day)).metered_per_kwh

    assert [per_kwh(2024, 12, 31), per_kwh(2025, 1, 1)] == [Decimal("0.1"), Decimal("0.4")]
    assert [per_kwh(2025, 12, 31), per_kwh(2026, 1, 1)] == [Decimal("0.4"), Decimal("0.3")]
    assert tariff_at(tariff, ns(2025, 6, 1)).per_kwh == Decimal("0.2")


def test_past_tariffs_with_equal_end_are_rejected():
    earlier = [{"until": "2026-01-01", "tariff_per_kwh": amount} for amount in (1, 2)]
    with pytest.raises(ValidationError, match="give each a different until"):
        ElectricityConfig.model_validate({"tariff_per_kwh": 1, "earlier": earlier})


def mig(number, slices, board="gpu0"):
    name = f"{board}.mig{number}"
    return Device(
        name, "mig", f"MIG-{number}", "H100 MIG", parent=board, slices=slices, slices_of=7
    )


def test_mig_devices_and_free_slices_cost_as_much_as_the_board():
    devices = [*GPUS[:2], mig(0, 3), mig(1, 2)]
    tariff = ElectricityConfig.model_validate({"tariff_per_kwh": Decimal("0.36")})
    plan = on_demand(Decimal(14), electricity_included=False)
    book = PriceBook([plan], tariff, devices)
    names = ("gpu0", "gpu0.mig0", "gpu0.mig1", "gpu1")
    terms = [book.terms(name, ns(2026, 1, 1)) for name in names]
    # The host's 14 an hour are 7 a board; the board keeps the two free slices.
    assert [t.rate.per_hour for t in terms] == [2, 3, 2, 7]
    assert terms[1].rate.source.endswith("3 of 7 slices")
    # Energy is the board's: each MIG device pays its slices' share, and the board the rest.
    paid = [found.electricity_per_j for found in terms]
    assert paid[:3] == pytest.approx([paid[3] * share / 7 for share in (2, 3, 2)])


def test_plan_of_a_mig_device_applies_to_it():
    devices = [GPUS[0], mig(0, 3)]
    book = PriceBook([on_demand(Decimal(7)), on_demand(1, device="gpu0.mig0")], None, devices)
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)).rate.per_hour == 1


def test_mig_device_with_unknown_slices_has_no_price():
    unknown = Device("gpu0.mig0", "mig", "MIG-0", "H100 MIG", parent="gpu0")
    book = PriceBook([on_demand(Decimal(7))], None, [GPUS[0], unknown])
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)) is None
