"""The price of a device-hour, by hand-computed examples."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from agent.config_price import ElectricityConfig, OnDemandPlanConfig, OwnedPlanConfig
from agent.model import Device
from agent.pricing.assumed import assumed_rate
from agent.pricing.book import PriceBook
from agent.pricing.plans import quote
from agent.pricing.tariff import metered_per_kwh, tariff_per_kwh
from agent.units import YEAR_H

GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3", i) for i in range(4)]
CPU = Device("cpu", "cpu", "cpu", "a CPU")


def on_demand(per_hour, **more):
    return OnDemandPlanConfig.model_validate({"plan": "on_demand", "per_hour": per_hour, **more})


def owned(**more):
    return OwnedPlanConfig.model_validate({"plan": "owned", **more})


def per_hour_of(plan, time_ns=0):
    return quote(plan, time_ns).per_hour


def ns(year, month, day):
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp()) * 10**9


def test_a_g4dn_8xlarge_costs_about_19_000_usd_a_year_on_demand():
    # 2.176 USD an hour x 8,760 hours.
    assert per_hour_of(on_demand(Decimal("2.176"))) * YEAR_H == Decimal("19061.760")


def test_a_15_000_usd_server_over_three_years_is_under_a_third_of_it():
    # 15,000 / (3 x 8,760 h) = 0.570776... USD an hour: 5,000 USD a year, before electricity.
    server = owned(purchase_price=Decimal(15000), lifetime="3y")
    per_hour = per_hour_of(server)
    assert round(per_hour, 6) == Decimal("0.570776")
    assert round(per_hour * YEAR_H, 2) == Decimal("5000.00")
    assert per_hour / Decimal("2.176") < Decimal("0.27")


def test_owned_writes_off_what_is_lost_and_adds_the_monthly_costs():
    # (30,000 - 6,000) / 43,800 h + 146 / 730 h = 0.547945... + 0.2
    server = owned(
        purchase_price=Decimal(30000),
        residual_value=Decimal(6000),
        lifetime="5y",
        monthly_costs=Decimal(146),
    )
    assert round(per_hour_of(server), 6) == Decimal("0.747945")


def test_a_host_plan_is_divided_over_its_accelerators_and_the_cpu_beside_them_has_no_price():
    book = PriceBook([on_demand(Decimal("8.00"))], None, [*GPUS, CPU])
    assert book.terms("gpu2", ns(2026, 1, 1)).rate.per_hour == 2
    assert book.terms("cpu", ns(2026, 1, 1)) is None


def test_a_host_plan_falls_to_the_cpu_where_there_is_no_accelerator():
    book = PriceBook([on_demand(Decimal("0.5"))], None, [CPU])
    assert book.terms("cpu", ns(2026, 1, 1)).rate.per_hour == Decimal("0.5")


def test_a_plan_that_names_its_device_goes_before_the_hosts():
    book = PriceBook([on_demand(Decimal(8)), on_demand(Decimal(3), device="gpu1")], None, GPUS)
    assert book.terms("gpu0", ns(2026, 1, 1)).rate.per_hour == 2
    assert book.terms("gpu1", ns(2026, 1, 1)).rate.per_hour == 3


def test_the_past_keeps_the_price_of_its_day():
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


def test_electricity_is_added_only_where_the_plan_leaves_it_out():
    # 0.30 x 1.2 = 0.36 a kWh = 1e-7 a joule.
    tariff = ElectricityConfig(tariff_per_kwh=Decimal("0.30"), pue=Decimal("1.2"))
    rented = PriceBook([on_demand(Decimal(1))], tariff, [CPU])
    bought = PriceBook([owned(purchase_price=Decimal(8760), lifetime="1y")], tariff, [CPU])
    assert rented.terms("cpu", ns(2026, 1, 1)).electricity_per_j == 0
    assert bought.terms("cpu", ns(2026, 1, 1)).electricity_per_j == pytest.approx(1e-7)


@pytest.mark.parametrize(
    ("model", "per_hour"),
    [
        ("NVIDIA H100 80GB HBM3", "6.88"),
        ("NVIDIA A100-SXM4-80GB", "3.4309"),
        ("NVIDIA A100-SXM4-40GB", "2.7447"),
        ("NVIDIA L40S", "1.861"),
        ("NVIDIA L4", "0.8048"),
        ("Tesla T4", "0.526"),
        ("NVIDIA GeForce RTX 4090", "1"),
        ("NVIDIA T400", "1"),
    ],
)
def test_without_a_plan_a_known_list_price_is_assumed_and_said(model, per_hour):
    rate = assumed_rate(Device("gpu0", "gpu", "u", model, 0), 8)
    assert rate.per_hour == Decimal(per_hour)
    assert rate.plan == "assumed"
    assert rate.source


def test_without_a_plan_a_cpu_costs_its_vcpus():
    assert assumed_rate(CPU, 4).per_hour == Decimal("0.178500")


def test_a_tariff_by_the_hour_holds_in_its_place():
    tariff = ElectricityConfig.model_validate(
        {
            "tariff_per_kwh": Decimal("0.20"),
            "timezone": "Europe/Berlin",
            "hours": [
                {"days": ["mon"], "start": "17:00", "end": "20:00", "tariff_per_kwh": "0.50"},
                {"start": "17:00", "end": "20:00", "tariff_per_kwh": "0.40"},
            ],
        }
    )
    book = PriceBook([on_demand(Decimal(1), electricity_included=False)], tariff, GPUS[:1])

    def per_kwh(*when):
        time_ns = int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000_000
        return book.terms("gpu0", time_ns).electricity_per_j * 3.6e6

    assert per_kwh(2026, 3, 2, 12) == pytest.approx(0.20)
    assert per_kwh(2026, 3, 2, 16) == pytest.approx(0.50)  # a Monday
    assert per_kwh(2026, 3, 3, 18, 59) == pytest.approx(0.40)
    assert per_kwh(2026, 3, 3, 19) == pytest.approx(0.20)


def test_the_past_keeps_the_tariff_of_its_day():
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
        return metered_per_kwh(tariff, ns(*day))

    assert [per_kwh(2024, 12, 31), per_kwh(2025, 1, 1)] == [Decimal("0.1"), Decimal("0.4")]
    assert [per_kwh(2025, 12, 31), per_kwh(2026, 1, 1)] == [Decimal("0.4"), Decimal("0.3")]
    assert tariff_per_kwh(tariff, ns(2025, 6, 1)) == Decimal("0.2")


def test_two_tariffs_of_the_past_cannot_end_on_one_day():
    earlier = [{"until": "2026-01-01", "tariff_per_kwh": amount} for amount in (1, 2)]
    with pytest.raises(ValidationError, match="give each its own until"):
        ElectricityConfig.model_validate({"tariff_per_kwh": 1, "earlier": earlier})


def mig(number, slices, board="gpu0"):
    name = f"{board}.mig{number}"
    return Device(
        name, "mig", f"MIG-{number}", "H100 MIG", 0, parent=board, slices=slices, slices_of=7
    )


def test_mig_devices_and_what_is_left_of_their_board_cost_what_the_board_costs():
    devices = [*GPUS[:2], mig(0, 3), mig(1, 2)]
    tariff = ElectricityConfig.model_validate({"tariff_per_kwh": Decimal("0.36")})
    plan = on_demand(Decimal(14), electricity_included=False)
    book = PriceBook([plan], tariff, devices)
    names = ("gpu0", "gpu0.mig0", "gpu0.mig1", "gpu1")
    terms = [book.terms(name, ns(2026, 1, 1)) for name in names]
    # The host's 14 an hour are 7 a board; the board keeps the two slices that nobody holds.
    assert [t.rate.per_hour for t in terms] == [2, 3, 2, 7]
    assert terms[1].rate.source.endswith("3 of 7 slices")
    # A window's energy on a MIG device is the board's, and it pays for its slices' share.
    whole = terms[0].electricity_per_j
    assert terms[1].electricity_per_j == pytest.approx(whole * 3 / 7)


def test_a_mig_device_with_a_plan_of_its_own_goes_by_that():
    devices = [GPUS[0], mig(0, 3)]
    book = PriceBook([on_demand(Decimal(7)), on_demand(1, device="gpu0.mig0")], None, devices)
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)).rate.per_hour == 1


def test_a_mig_device_whose_slices_are_unknown_has_no_price():
    unknown = Device("gpu0.mig0", "mig", "MIG-0", "H100 MIG", 0, parent="gpu0")
    book = PriceBook([on_demand(Decimal(7))], None, [GPUS[0], unknown])
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)) is None
