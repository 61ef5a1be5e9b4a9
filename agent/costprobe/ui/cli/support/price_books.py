"""Prices and carbon intensities of this host, with stored spot values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.adapters.feeds.source import SourceError
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.accounting.assumed_prices import assumed_prices, catalogue_folder
from costprobe.app.accounting.carbon_feed import KIND as CARBON
from costprobe.app.accounting.spot_feeds import kind_of
from costprobe.app.accounting.timed_feed import FeedKind, read_values
from costprobe.core.host import HostConfig
from costprobe.core.records import Device
from costprobe.domain.pricing.assumed import AssumedPrices
from costprobe.domain.pricing.book import PriceBook
from costprobe.domain.pricing.carbon import CarbonBook, CarbonConfig
from costprobe.domain.pricing.catalogue.catalogue import Catalogue
from costprobe.domain.pricing.catalogue.offer import Offer
from costprobe.domain.pricing.plans.feed import FeedPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.source import SourceConfig
from costprobe.domain.pricing.spot_prices import Spots
from costprobe.domain.pricing.tariff import ElectricityConfig
from costprobe.domain.pricing.timed import TimedValues


@cache
def host_detector() -> InstanceDetector:
    """Return the detector of this process: a command asks a metadata service once."""
    return InstanceDetector()


class StoredPrices:
    """The prices of this host: those of the store, or of their sources if none are stored.

    Args:
        plans: The configured prices.
        electricity: The section [electricity]; None without it.
        carbon: The section [carbon]; None without it.
        host: Whether the instance may be detected.
        store_path: The store; newer price tables are beside it.

    Attributes:
        plans: The configured prices.
        electricity: The section [electricity]; None without it.
        notes: What could not be read, one line each, in the order of the reads.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        electricity: ElectricityConfig | None,
        carbon: CarbonConfig | None,
        host: HostConfig,
        store_path: Path,
    ) -> None:
        self.plans = plans
        self.electricity = electricity
        self.notes: list[str] = []
        self._carbon = carbon
        self._host = host
        self._store_path = store_path

    def book(self, devices: Sequence[Device]) -> PriceBook:
        """Return the price book, with the known spot prices."""
        spots = self.spots()
        return PriceBook(self.plans, self.electricity, devices, self.assumed(), lambda: spots)

    def assumed(self) -> AssumedPrices:
        """Return the prices of this host while none is configured."""
        return assumed_prices(self.plans, self._host, self._store_path, host_detector())

    def catalogue(self) -> Catalogue:
        """Return the catalogue in force now."""
        return catalogue_folder(self._store_path).at(time.time_ns())

    def host_offer(self) -> Offer | None:
        """Return the offer of the instance that this host is, whatever price is configured.

        None if it is no cloud's, is not listed in its region, or detection is off.
        """
        instance = host_detector().instance() if self._host.detect == "auto" else None
        if instance is None:
            return None
        return self.catalogue().offer(instance.cloud, instance.type, instance.region)

    def carbon_book(self, devices: Sequence[Device]) -> CarbonBook:
        """Return the carbon intensities."""
        carbon = self._carbon
        intensities = TimedValues()
        if carbon is not None and carbon.sources:
            intensities = self._known(CARBON, carbon, self._states())
        return CarbonBook(carbon, self.electricity, devices, lambda: intensities)

    def spots(self, more: Sequence[Plan] = ()) -> Spots:
        """Return the spot prices by plan.

        Args:
            more: Plans besides those of the configuration.
        """
        plans = [plan for plan in (*self.plans, *more) if isinstance(plan, FeedPlan)]
        states = self._states() if plans else {}
        return {plan.name: self._known(kind_of(plan), plan, states) for plan in plans}

    def _states(self) -> dict[str, tuple[Any, int]]:
        try:
            with closing(StoreReader.open(self._store_path)) as reader:
                return reader.states()
        except StoreError:
            return {}  # no daemon has run here yet

    def _known(
        self, kind: FeedKind, source: SourceConfig, states: dict[str, tuple[Any, int]]
    ) -> TimedValues:
        document, _ = states.get(kind.state, (None, 0))
        if document:
            try:
                return TimedValues.from_document(document)
            except (ArithmeticError, KeyError, TypeError, ValueError):
                self.notes.append(f"{kind.title}: the stored values are damaged")
        now_ns = time.time_ns()
        try:
            news = read_values(kind, source, now_ns)
        except SourceError as error:
            self.notes.append(f"{kind.title}: {error}")
            return TimedValues()
        return TimedValues().updated(news, kind.valid_until_ns(news, now_ns))
