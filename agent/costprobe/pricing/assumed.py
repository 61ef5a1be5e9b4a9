"""Prices of a device-hour where none is configured: by the catalogue.

On a detected instance the list price of its cloud applies (plan `list`). Elsewhere the median of all
clouds is assumed for the GPU model (plan `assumed`), with its range.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from statistics import median

from costprobe.core.records import Device, Instance, cloud_words
from costprobe.core.units import YEAR_H, counted
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue, GpuModel, Offer, PriceRange
from costprobe.pricing.plans import Rate

PLAN = "assumed"
LIST_PLAN = "list"
# Depreciation period of a GPU that no cloud lists.
LIFETIME_YEARS = 3
# Digits of an assumed price: its range is far wider than a cent.
_DIGITS = Decimal("0.0001")
_UNKNOWN_GPU_PER_H = Decimal(1)
_SIMILAR_MEMORY = Decimal("0.25")
_GIB = 1 << 30


class AssumedPrices:
    """The prices of a host without a configured price.

    Args:
        catalogue: Returns the catalogue in force at UTC ns since 1970.
        logical_cpus: vCPUs of the host.
        instance: What the host is; None if it is no cloud's, or unknown.

    Attributes:
        catalogue: Returns the catalogue in force at UTC ns since 1970.
        instance: What the host is.
    """

    def __init__(
        self,
        catalogue: Callable[[int], Catalogue],
        logical_cpus: int = 1,
        instance: Instance | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._logical_cpus = logical_cpus
        self.instance = instance
        # A question for each reading of each device; a catalogue has some thousand offers, which
        # are parsed once for all devices of a kind.
        self._known: dict[tuple[str, str, int | None, int, date], Rate | None] = {}

    def locate(self, instance: Instance | None) -> None:
        """Set what the host is; the prices apply from now on."""
        self.instance = instance
        self._known = {}

    def rate(self, device: Device, sharing: int, time_ns: int) -> Rate | None:
        """Return the price of a device-hour.

        Args:
            device: A board, or the host's CPUs.
            sharing: Accelerators of the host; 0 without any.
            time_ns: UTC ns since 1970.

        Returns:
            The rate; None for the CPUs of an instance with accelerators, which bear its price.
        """
        catalogue = self.catalogue(time_ns)
        key = (device.kind, device.model, device.memory_bytes, sharing, catalogue.version)
        if key not in self._known:
            self._known[key] = self._new_rate(catalogue, device, sharing)
        return self._known[key]

    def _new_rate(self, catalogue: Catalogue, device: Device, sharing: int) -> Rate | None:
        host = self._host_rate(catalogue, sharing)
        if host is not None:
            return None if device.is_host and sharing else host
        cloud = self.instance.cloud if self.instance else ""
        if device.is_host:
            per_vcpu = catalogue.vcpu_range(cloud) or catalogue.vcpu_range()
            return _assumed(
                per_vcpu, f"{self._logical_cpus} vCPU", self._logical_cpus, self.instance
            )
        return self._by_model(catalogue, device, cloud)

    def _host_rate(self, catalogue: Catalogue, sharing: int) -> Rate | None:
        """Return the share of the instance's price; None if the catalogue lists it nowhere."""
        instance = self.instance
        if instance is None:
            return None
        is_spot = instance.market == "spot"
        here = catalogue.offer(instance.cloud, instance.type, instance.region)
        if here is not None and not is_spot and here.on_demand_per_h is not None:
            return _listed(here, instance, sharing)
        if here is not None and is_spot and here.spot_per_h is not None:
            bounds = sorted((here.spot_per_h, here.on_demand_per_h or here.spot_per_h))
            words = "typical spot price of its region"
            return _of_host(here, instance, sharing, (here.spot_per_h, *bounds), words)
        offers = catalogue.offers_of(instance.cloud, instance.type)
        prices = [offer.on_demand_per_h for offer in offers if offer.on_demand_per_h is not None]
        if not prices:
            return None
        words = f"no list price of its region; that of {counted(len(prices), 'other region')}"
        if is_spot:
            words = "rented at spot prices, of which none is known; list price"
        values = (median(prices), min(prices), max(prices))
        return _of_host(offers[0], instance, sharing, values, words)

    def _by_model(self, catalogue: Catalogue, device: Device, cloud: str) -> Rate:
        models = catalogue.gpus.models_of(device.model, device.memory_bytes)
        for gpu in models:
            found = catalogue.gpu_range([gpu.model], cloud) or catalogue.gpu_range([gpu.model])
            if found is not None:
                return _assumed(found, gpu.model, 1, self.instance)
        for gpu in models:
            bought = _bought(catalogue, gpu)
            if bought is not None:
                return bought
        similar = _similar(catalogue, device.memory_bytes)
        if similar is not None:
            words = f"no price of {device.model} is known; GPUs of similar memory"
            return _assumed(similar, words, 1, self.instance)
        words = f"no price of {device.model} is known: a placeholder of 1 USD"
        return _rate(PLAN, RANGE_CURRENCY, _UNKNOWN_GPU_PER_H, words, "placeholder")


def _listed(offer: Offer, instance: Instance, sharing: int) -> Rate:
    """Return a device's share of the list price."""
    per_host, count = offer.on_demand_per_h or Decimal(0), offer.devices(sharing)
    amount = f"{instance.words}: {per_host.normalize():f} {offer.currency}/h"
    share = f", 1/{count.normalize():f} of the host" if count > 1 else ""
    doubt = f" (in doubt: {offer.doubt})" if offer.doubt else ""
    return _rate(
        LIST_PLAN,
        offer.currency,
        per_host / count,
        f"{amount}, {cloud_words(offer.cloud)} list price {_when(offer.as_of)}{share}{doubt}",
        f"list price / {count.normalize():f} devices" if count > 1 else "list price",
    )


def _of_host(
    offer: Offer,
    instance: Instance,
    sharing: int,
    values: tuple[Decimal, ...],
    words: str,
) -> Rate:
    """Return a device's share of an assumed price of the host: the price, its least and largest."""
    count = offer.devices(sharing)
    per_hour, low, high = (value / count for value in values)
    return _rate(
        PLAN,
        offer.currency,
        per_hour,
        f"{instance.words}: {words} {_when(offer.as_of)}",
        "assumed price of the host",
        (low, high),
    )


def _when(as_of: str) -> str:
    return f"as of {as_of}" if as_of else "without a date"


def _assumed(found: PriceRange | None, words: str, units: int, instance: Instance | None) -> Rate:
    """Return the median of a range, for a number of units."""
    if found is None:
        source = f"no list price of {words} in the catalogue: a placeholder of 1 USD"
        return _rate(PLAN, RANGE_CURRENCY, _UNKNOWN_GPU_PER_H, source, "placeholder")
    count = len(found.clouds)
    clouds = cloud_words(found.clouds[0]) if count == 1 else f"median of {count} clouds"
    where = ""
    if instance is not None:
        unlisted = " has no list price in the catalogue" if instance.type else ""
        where = f"{instance.words}{unlisted}; "
    return _rate(
        PLAN,
        RANGE_CURRENCY,
        (found.median * units).quantize(_DIGITS),
        f"{where}{words}: list price {_when(found.as_of)}, {clouds}",
        "list price",
        (found.low * units, found.high * units),
    )


def _bought(catalogue: Catalogue, gpu: GpuModel) -> Rate | None:
    """Return straight-line depreciation of a board that no cloud lists, without server and power."""
    found = catalogue.purchase_range(gpu.model)
    if found is None:
        return None
    hours = LIFETIME_YEARS * YEAR_H
    low, high = found
    words = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
    return _rate(
        PLAN,
        RANGE_CURRENCY,
        ((low + high) / 2 / hours).quantize(_DIGITS),
        f"{gpu.model}: no cloud lists it; purchase price of {words} USD over {LIFETIME_YEARS} years,"
        " without the server and electricity",
        f"purchase price / {hours} h",
        (low / hours, high / hours),
    )


def _similar(catalogue: Catalogue, memory_bytes: int | None) -> PriceRange | None:
    """Return the price of GPUs whose memory is within a quarter of a device's."""
    if not memory_bytes:
        return None
    memory_gb = Decimal(memory_bytes) / _GIB
    similar = [
        gpu.model
        for gpu in catalogue.gpus.gpus
        if gpu.memory_gb is not None
        and abs(gpu.memory_gb - memory_gb) <= memory_gb * _SIMILAR_MEMORY
    ]
    return catalogue.gpu_range(similar)


def _rate(
    plan: str,
    currency: str,
    per_hour: Decimal,
    source: str,
    origin: str,
    bounds: tuple[Decimal, Decimal] | None = None,
) -> Rate:
    low, high = (bound.quantize(_DIGITS) for bound in bounds) if bounds else (None, None)
    return Rate(
        plan,
        currency,
        per_hour,
        electricity_included=True,
        source=source,
        parts=(("rent", per_hour),),
        origins=(origin,),
        low_per_hour=low,
        high_per_hour=high,
    )
