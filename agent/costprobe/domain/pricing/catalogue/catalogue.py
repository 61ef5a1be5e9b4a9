"""One version of the catalogue, and the prices that it has for an instance or a GPU model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from statistics import median

from costprobe.domain.pricing.catalogue.gpu_names import GpuNames
from costprobe.domain.pricing.catalogue.offer import ALL_REGIONS, Offer, Purchase

# Currency of ranges: prices in different currencies have no common range.
RANGE_CURRENCY = "USD"
# An older catalogue is reported: list prices of GPUs changed by up to a half within a year.
MAX_AGE_DAYS = 183


@dataclass(frozen=True, slots=True)
class PriceRange:
    """List prices of one GPU or vCPU over clouds, in USD per hour.

    Attributes:
        median: Median of the clouds.
        low, high: The cheapest and the dearest cloud.
        clouds: The clouds.
        as_of: Date of the newest price; empty if none has one.
    """

    median: Decimal
    low: Decimal
    high: Decimal
    clouds: tuple[str, ...]
    as_of: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Prices of instances and GPUs.

    Attributes:
        version: Its date.
        offers: Instances; packed, they are parsed at each pass.
        purchases: GPUs to buy.
        gpus: GPU models by the names of drivers.
    """

    version: date
    offers: Iterable[Offer]
    purchases: Sequence[Purchase]
    gpus: GpuNames

    def is_old(self, day: date) -> bool:
        """Return whether the catalogue is older than six months on a day."""
        return (day - self.version).days > MAX_AGE_DAYS

    def offer(self, cloud: str, instance: str, region: str) -> Offer | None:
        """Return the offer of an instance in a region; None if the catalogue has none."""
        found = {offer.region: offer for offer in self.offers_of(cloud, instance)}
        return found.get(region) or found.get(ALL_REGIONS)

    def offers_of(self, cloud: str, instance: str) -> list[Offer]:
        """Return the offers of an instance in all regions."""
        # Azure's names are written in several ways: standard_nc24ads_a100_v4.
        wanted = (cloud, instance.lower())
        return [offer for offer in self.offers if (offer.cloud, offer.instance.lower()) == wanted]

    def gpu_range(self, models: Iterable[str], cloud: str = "") -> PriceRange | None:
        """Return the price of one GPU per hour, with its share of the instance.

        Args:
            models: GPU models, as NVML names them, that count as one.
            cloud: The only cloud; empty for all.
        """
        wanted = set(models)
        return _range(
            (offer, offer.gpu_count)
            for offer in self.offers
            if offer.gpu_model in wanted and cloud in ("", offer.cloud)
        )

    def vcpu_range(self, cloud: str = "") -> PriceRange | None:
        """Return the price of one vCPU per hour, by instances without a GPU.

        Args:
            cloud: The only cloud; empty for all.
        """
        return _range(
            (offer, offer.vcpu)
            for offer in self.offers
            if not offer.gpu_model and cloud in ("", offer.cloud)
        )

    def purchase_range(
        self, name: str, memory_bytes: int | None = None
    ) -> tuple[Decimal, Decimal] | None:
        """Return the least and the largest price in USD of one new board; None if unknown.

        Args:
            name: The driver's product name.
            memory_bytes: Memory of the device, where known.
        """
        for gpu in self.gpus.models_of(name, memory_bytes):
            prices = [
                price / found.gpu_count
                for found in self.purchases
                if (found.gpu_model, found.condition, found.currency)
                == (gpu.model, "new", RANGE_CURRENCY)
                for price in (found.purchase_price_low, found.purchase_price_high)
            ]
            if prices:
                return min(prices), max(prices)
        return None


def _range(offers: Iterable[tuple[Offer, Decimal | None]]) -> PriceRange | None:
    """Return the range over clouds of the price of one unit.

    A cloud's price is the median over its regions of the cheapest instance there, because a larger
    instance with the same GPU sells cores and memory. Undated offers count only without dated ones.
    """
    units = [
        (offer, offer.on_demand_per_h / count)
        for offer, count in offers
        if offer.on_demand_per_h is not None and count and offer.currency == RANGE_CURRENCY
    ]
    units = [(offer, per_h) for offer, per_h in units if offer.as_of] or units
    if not units:
        return None
    cheapest: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for offer, per_h in units:
        regions = cheapest[offer.cloud]
        regions[offer.region] = min(per_h, regions.get(offer.region, per_h))
    prices = {cloud: median(regions.values()) for cloud, regions in cheapest.items()}
    return PriceRange(
        median=median(prices.values()),
        low=min(prices.values()),
        high=max(prices.values()),
        clouds=tuple(sorted(prices)),
        as_of=max(offer.as_of for offer, _ in units),
    )
