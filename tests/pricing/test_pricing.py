"""The price of a device-hour, by hand-computed examples."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from costprobe.core.records import Device
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig, tariff_at
from costprobe.pricing.plans import OnDemandPlan
from pydantic import ValidationError

GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(4)]


def on_demand(per_hour, **more):
    return OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": per_hour, **more})


def ns(year, month, day):
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp()) * 10**9


def test_device_plan_precedes_the_host_plan():
    book = PriceBook([on_demand(Decimal(8)), on_demand(Decimal(3), device="gpu1")], None, GPUS)
    assert book.terms("gpu0", ns(2026, 1, 1)).rate.per_hour == 2
    assert book.terms("gpu1", ns(2026, 1, 1)).rate.per_hour == 3


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
    earlier = [{"until": "2026-01-01", "tariff_per_kwh": amount} for amount in (1, 2)]
    with pytest.raises(ValidationError, match="give each a different until"):
        ElectricityConfig.model_validate({"tariff_per_kwh": 1, "earlier": earlier})


def test_mig_device_has_its_own_plan_and_no_price_with_unknown_slices():
    known, unknown = (
        Device("gpu0.mig0", "mig", "MIG-0", "H100 MIG", parent="gpu0", slices=s, slices_of=of)
        for s, of in ((3, 7), (0, 0))
    )
    plans = [on_demand(Decimal(7)), on_demand(1, device="gpu0.mig0")]
    book = PriceBook(plans, None, [GPUS[0], known])
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)).rate.per_hour == 1
    book = PriceBook(plans[:1], None, [GPUS[0], unknown])
    assert book.terms("gpu0.mig0", ns(2026, 1, 1)) is None
