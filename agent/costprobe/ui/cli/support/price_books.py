"""Price book and carbon intensities of a configuration, with stored spot values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.adapters.feeds.source import SourceError
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.accounting.assumed_prices import assumed_prices, catalogue_folder
from costprobe.app.accounting.carbon_feed import KIND as CARBON
from costprobe.app.accounting.spot_feeds import kind_of
from costprobe.app.accounting.timed_feed import FeedKind, read_values
from costprobe.core.records import Device
from costprobe.domain.pricing.assumed import AssumedPrices
from costprobe.domain.pricing.book import PriceBook
from costprobe.domain.pricing.carbon import CarbonBook
from costprobe.domain.pricing.catalogue.catalogue import Catalogue
from costprobe.domain.pricing.catalogue.offer import Offer
from costprobe.domain.pricing.plans.feed import FeedPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.source import SourceConfig
from costprobe.domain.pricing.spot_prices import Spots
from costprobe.domain.pricing.timed import TimedValues
from costprobe.ui.cli.support.loaded_config import LoadedConfig
from costprobe.ui.cli.support.output import echo


def price_book(settings: LoadedConfig, devices: Sequence[Device]) -> PriceBook:
    """Return the price book, with stored spot prices, or those of the source if none are stored."""
    config = settings.config
    spots = known_spots(settings)
    return PriceBook(
        config.price, config.electricity, devices, host_prices(settings), lambda: spots
    )


@cache
def host_detector() -> InstanceDetector:
    """Return the detector of this process: a command asks a metadata service once."""
    return InstanceDetector()


def host_prices(settings: LoadedConfig) -> AssumedPrices:
    """Return the prices of this host while none is configured."""
    return assumed_prices(
        settings.config.price, settings.config.host, settings.store_path, host_detector()
    )


def listed_catalogue(settings: LoadedConfig) -> Catalogue:
    """Return the catalogue in force now."""
    return catalogue_folder(settings.store_path).at(time.time_ns())


def host_offer(settings: LoadedConfig) -> Offer | None:
    """Return the offer of the instance that this host is, whatever price is configured.

    None if it is no cloud's, is not listed in its region, or detection is off.
    """
    instance = host_detector().instance() if settings.config.host.detect == "auto" else None
    if instance is None:
        return None
    return listed_catalogue(settings).offer(instance.cloud, instance.type, instance.region)


def carbon_book(settings: LoadedConfig, devices: Sequence[Device]) -> CarbonBook:
    """Return the carbon intensities, stored, or those of the source if none are stored."""
    config, carbon = settings.config, settings.config.carbon
    intensities = TimedValues()
    if carbon is not None and carbon.sources:
        intensities = _known(CARBON, carbon, _states(settings))
    return CarbonBook(carbon, config.electricity, devices, lambda: intensities)


def known_spots(settings: LoadedConfig, more: Sequence[Plan] = ()) -> Spots:
    """Return the stored spot prices by plan; for a plan without any, those of its source.

    Args:
        settings: The configuration.
        more: Plans besides those of the configuration.
    """
    plans = [plan for plan in (*settings.config.price, *more) if isinstance(plan, FeedPlan)]
    states = _states(settings) if plans else {}
    return {plan.name: _known(kind_of(plan), plan, states) for plan in plans}


def _states(settings: LoadedConfig) -> dict[str, tuple[Any, int]]:
    try:
        with closing(StoreReader.open(settings.store_path)) as reader:
            return reader.states()
    except StoreError:
        return {}  # no daemon has run here yet


def _known(kind: FeedKind, source: SourceConfig, states: dict[str, tuple[Any, int]]) -> TimedValues:
    document, _ = states.get(kind.state, (None, 0))
    if document:
        try:
            return TimedValues.from_document(document)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            echo(f"{kind.title}: the stored values are damaged", err=True)
    now_ns = time.time_ns()
    try:
        news = read_values(kind, source, now_ns)
    except SourceError as error:
        echo(f"{kind.title}: {error}", err=True)
        return TimedValues()
    return TimedValues().updated(news, kind.valid_until_ns(news, now_ns))
