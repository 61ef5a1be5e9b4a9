"""The prices in force on this host: read from their sources, stored, checked for staleness.

Spot prices, list prices and carbon intensity change over time. A host without a configured price
has one from the catalogue and the instance it is. The price book and carbon intensities of a
configuration are built with stored spot values.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Final

from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.adapters.clouds.price_lists import only_price
from costprobe.adapters.clouds.source import (
    SourceError,
    read_price_list,
    read_source,
    source_name,
)
from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.errors import RetryBackoff
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.ledger import Ledger, restored
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.config.fields import HostConfig, SourceConfig
from costprobe.core.periods import utc_day
from costprobe.core.records import NS_PER_S, Device, Event
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook, Prices, Terms
from costprobe.pricing.catalogue import Catalogue, Offer, catalogue_prices
from costprobe.pricing.catalogue_files import CatalogueFolder
from costprobe.pricing.electricity import (
    NO_CARBON,
    CarbonBook,
    CarbonConfig,
    ElectricityConfig,
    parse_carbon,
)
from costprobe.pricing.plans import FeedPlan, Plan, Spots, parse_spot
from costprobe.pricing.timed import TimedValue, TimedValues

logger = logging.getLogger(__name__)

# Beside the store, which the service's user may write.
FOLDER: Final = "catalogue"
CATALOGUE_EVERY_S: Final = 86_400.0
INSTANCE_EVERY_S: Final = 600.0
_AGE_STATE: Final = "price catalogue"
# Limit of the wait after a first failure; it doubles with each, up to the source's own interval.
RETRY_S: Final = 300.0
CARBON_STATE: Final = "carbon intensity"


@dataclass(frozen=True, slots=True)
class FeedKind:
    """A feed: its source, and how it is shown.

    Attributes:
        source: The configuration of the source.
        title: Its name in events: "spot price NAME".
        noun: Name of a value: "price".
        state: Name of its stored document.
        keys: Names of the value in force and of the number of values in the status.
        parse: Parses the source's output at a UTC ns.
        is_dated: Whether an answer is valid up to its newest figure only.
        labels: Further entries of the status.
    """

    source: SourceConfig
    title: str
    noun: str
    state: str
    keys: tuple[str, str]
    parse: Callable[[str, int], list[TimedValue]]
    is_dated: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    def updated(self, known: TimedValues, now_ns: int) -> TimedValues:
        """Read the source, and return the known values with its values at a UTC ns.

        Raises:
            SourceError: The source cannot be read, or returns something else.
        """
        text = read_output(self.source)
        try:
            news = self.parse(text, now_ns)
        except ValueError as error:
            reason = outside_text(str(error))
            raise SourceError(f"{source_name(self.source)}: {reason}") from None
        # The intensity of a grid applies to its hour, unlike a price, which applies until the next.
        newest_ns = max(value.time_ns for value in news) if self.is_dated else now_ns
        return known.updated(news, min(now_ns, newest_ns))


def read_output(source: SourceConfig) -> str:
    """Return the current output of a source, or the price that a plan names in a price list.

    Args:
        source: A file, a command, an HTTP endpoint, or a plan.

    Raises:
        SourceError: It cannot be read, takes too long, is too large, or has no such price.
    """
    if not isinstance(source, FeedPlan) or source.api is None:
        return read_source(source)
    if source.api != "catalogue":
        return read_price_list(source)
    table = read_source(source)
    instance, region = source.instance or "", source.region or ""
    is_spot = source.plan == "spot"
    try:
        found = catalogue_prices(table, instance, region, source.currency, is_spot=is_spot)
        return f"{only_price(found, f'{instance} in {region}'):f}"
    except ValueError as error:
        raise SourceError(f"{source_name(source)}: {outside_text(str(error))}") from None


class TimedFeed:
    """A value that a source provides over time.

    Args:
        kind: The feed.
        ledger: Stores the values, so that they survive a restart and past rows keep theirs.
        clock: The host's clocks.
        on_event: Receives the event of a source that fails or becomes stale, and of its recovery.
    """

    def __init__(
        self,
        kind: FeedKind,
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        self.kind = kind
        self.source = kind.source
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event
        self._error: str | None = None
        self._backoff = RetryBackoff(RETRY_S, self.source.every_s, Random())  # noqa: S311 - jitter
        self._retry_ns = 0
        stored = restored(ledger, kind.state, TimedValues.from_document)
        self._known = stored or TimedValues()
        # Staleness from before the restart was reported by the previous process.
        self._reported_stale = self._known.seen_ns is None or self._is_stale(self._known)

    def current(self) -> TimedValues:
        """Return the known values."""
        return self._known

    def refresh(self) -> None:
        """Read the source; if it fails the last known value stays in force."""
        now_ns = self._clock.time_ns()
        known = self._known.without_future(now_ns)
        try:
            known = self.kind.updated(known, now_ns)
        except SourceError as error:
            self._failed(str(error))
        else:
            self._ledger.put_state(self.kind.state, known.to_document())
            self._backoff.succeeded()
            if self._error is not None:
                self._error = None
                title = f"{self.kind.title}: its source works again"
                self._on_event(Event("fault", "info", title, now_ns))
        self._known = known
        self._notice_staleness()

    def retry(self) -> None:
        """Read the source again after a failure, less and less often; otherwise do nothing."""
        if self._error is not None and self._clock.monotonic_ns() >= self._retry_ns:
            self.refresh()

    def status(self) -> dict[str, Any]:
        """Return the feed's state; the value in force is None before the first."""
        now_ns = self._clock.time_ns()
        values = self._known
        value = values.at(now_ns)
        return {
            **self.kind.labels,
            self.kind.keys[0]: None if value is None else str(value.value),
            "since_ns": None if value is None else value.time_ns,
            "seen_ns": values.seen_ns,
            "stale": self._is_stale(values),
            self.kind.keys[1]: len(values.values),
            "last_error": self._error,
        }

    def _is_stale(self, values: TimedValues) -> bool:
        return values.is_stale(self._clock.time_ns(), self.source.stale_after_s)

    def _failed(self, reason: str) -> None:
        is_new = self._error is None
        self._error = reason
        self._retry_ns = self._clock.monotonic_ns() + int(self._backoff.failed() * NS_PER_S)
        if not is_new:
            return
        kind = self.kind
        logger.warning("%s: %s", kind.title, reason)
        self._report(
            f"{kind.title}: its source returns no {kind.noun}",
            f"{reason}. The last known {kind.noun} stays in force; it is marked when it is stale.",
        )

    def _notice_staleness(self) -> None:
        """Report staleness once, and again only after a newer value."""
        is_stale = self._is_stale(self._known)
        if is_stale and not self._reported_stale:
            kind = self.kind
            self._report(
                f"{kind.title} is stale",
                f"no {kind.noun} newer than {self.source.stale_after_s:g} s; the last known one"
                " stays in force and is marked stale",
            )
        self._reported_stale = is_stale

    def _report(self, title: str, detail: str) -> None:
        now_ns = self._clock.time_ns()
        cause = f"{self.kind.noun} source"
        self._on_event(Event("fault", "warning", title, now_ns, detail=detail, cause=cause))


def _of_carbon(carbon: CarbonConfig) -> FeedKind:
    keys = ("g_per_kwh", "intensities")
    return FeedKind(
        carbon, CARBON_STATE, "intensity", CARBON_STATE, keys, parse_carbon, is_dated=True
    )


def _of_plan(plan: FeedPlan) -> FeedKind:
    """Return the feed of a plan, whose currency the source must not contradict."""
    return FeedKind(
        plan,
        title=f"{plan.plan} price {plan.name}",
        noun="price",
        state=f"{plan.plan} {plan.name}",
        keys=("price_per_h", "prices"),
        parse=partial(parse_spot, currency=plan.currency),
        labels={"currency": plan.currency},
    )


class Feeds:
    """The prices and carbon intensities of a configuration that are read from sources.

    Args:
        plans: All plans.
        carbon: The section [carbon]; None without it.
        ledger: Stores values, so that they survive a restart and past rows keep theirs.
        clock: The host's clocks.
        on_event: Receives the event of a source that fails or becomes stale, and of its recovery.

    Attributes:
        prices: Those of the plans that read a source, by the plans' names.
        carbon: Carbon intensities; None without a source.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        carbon: CarbonConfig | None,
        ledger: Ledger,
        clock: Clock,
        on_event: Callable[[Event], None],
    ) -> None:
        feed = partial(TimedFeed, ledger=ledger, clock=clock, on_event=on_event)
        self.prices = {
            plan.name: feed(_of_plan(plan)) for plan in plans if isinstance(plan, FeedPlan)
        }
        self.carbon = feed(_of_carbon(carbon)) if carbon and carbon.sources else None

    def spots(self) -> Spots:
        """Return the known prices, by the plans' names."""
        return {name: feed.current() for name, feed in self.prices.items()}

    def intensities(self) -> TimedValues:
        """Return the known carbon intensities; empty without a source."""
        return self.carbon.current() if self.carbon else TimedValues()


class RememberedPrices:
    """The prices of devices, each with the previous terms of the device; thread-safe.

    Readings and probe runs share it, so that a change is reported once.

    Args:
        book: The prices.
        ledger: Stores the terms.
        clock: The host's clocks.
        carbon: Carbon intensities.

    Attributes:
        book: The prices.
        carbon: Carbon intensities.
    """

    def __init__(
        self, book: PriceBook, ledger: Ledger, clock: Clock, carbon: CarbonBook = NO_CARBON
    ) -> None:
        self.book = book
        self.carbon = carbon
        self._ledger = ledger
        self._clock = clock
        self._last_terms: dict[str, Terms] = {}
        self._lock = Lock()

    def terms_now(self, device: str) -> Terms | None:
        """Return the price terms in force for a device; None without a price."""
        return self.book.terms(device, self._clock.time_ns())

    def at(self, device: str, time_ns: int) -> Prices:
        """Return the prices in force, and record their terms as the previous ones."""
        terms = self.book.terms(device, time_ns)
        intensity = self.carbon.intensity(device, time_ns)
        if terms is None:
            return Prices(None, None, intensity)
        with self._lock:
            before = self._last_terms.get(device)
            if before is None:
                before = restored(self._ledger, _terms_name(device), Terms.from_document)
            self._last_terms[device] = terms
        return Prices(terms, before, intensity)


def terms_state(device: str, prices: Prices) -> dict[str, Any]:
    """Return the document of a device's terms if they changed, to be stored with the rows of the change."""
    if prices.terms is None or prices.terms == prices.terms_before:
        return {}
    return {_terms_name(device): prices.terms.to_document()}


def _terms_name(device: str) -> str:
    return f"terms {device}"


def catalogue_folder(store_path: Path) -> CatalogueFolder:
    """Return the installed price tables of a store's user."""
    return CatalogueFolder(store_path.parent / FOLDER)


def assumed_prices(
    plans: Sequence[Plan], host: HostConfig, store_path: Path, detector: InstanceDetector
) -> AssumedPrices:
    """Return the prices of this host; the catalogue is read when the first is needed.

    Args:
        plans: The configured prices; with one the instance is not detected.
        host: Whether the instance may be detected.
        store_path: The store, beside which newer price tables are installed.
        detector: Detects the instance.
    """
    wanted = not plans and host.detect == "auto"
    instance = detector.instance() if wanted else None
    return AssumedPrices(catalogue_folder(store_path).at, os.cpu_count() or 1, instance)


class HostPricing:
    """The prices of a host in a running daemon: they follow the instance, and report their age.

    Args:
        plans: The configured prices.
        host: Whether the instance may be detected.
        store_path: The store, beside which newer price tables are installed.
        detector: Detects the instance.
        ledger: Keeps which version of the catalogue was reported as old.
        clock: The host's clocks.
        on_event: Receives the event of an old catalogue.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        host: HostConfig,
        store_path: Path,
        detector: InstanceDetector,
        ledger: Ledger,
        clock: Clock,
        *,
        on_event: Callable[[Event], None],
    ) -> None:
        self.assumed = assumed_prices(plans, host, store_path, detector)
        self._is_assumed = not plans
        self._detector = detector
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event

    def jobs(self) -> Iterator[tuple[str, float, Callable[[], None]]]:
        """Yield name, period in s and function of each job; none with a configured price."""
        if self._is_assumed:
            yield "price catalogue", CATALOGUE_EVERY_S, self.report_age
        if self.assumed.instance is not None and not self.assumed.instance.is_complete:
            # The metadata service may not answer while the network starts.
            yield "cloud instance", INSTANCE_EVERY_S, self._locate

    def report_age(self) -> None:
        """Report once that this version of the catalogue is older than six months, if it is."""
        now_ns = self._clock.time_ns()
        catalogue = self.assumed.catalogue(now_ns)
        version = catalogue.version.isoformat()
        if not catalogue.is_old(utc_day(now_ns)) or self._ledger.state(_AGE_STATE) == {
            "reported": version
        }:
            return
        self._ledger.put_state(_AGE_STATE, {"reported": version})
        detail = (
            "list prices may have changed since: set [[price]], or install a newer catalogue with"
            " costprobe price update"
        )
        title = f"price catalogue of {version} is older than six months"
        self._on_event(
            Event("price", "warning", title, now_ns, detail=detail, cause="old catalogue")
        )

    def _locate(self) -> None:
        self.assumed.locate(self._detector.instance())


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
            intensities = self._known(_of_carbon(carbon), self._states())
        return CarbonBook(carbon, self.electricity, devices, lambda: intensities)

    def spots(self, more: Sequence[Plan] = ()) -> Spots:
        """Return the spot prices by plan.

        Args:
            more: Plans besides those of the configuration.
        """
        plans = [plan for plan in (*self.plans, *more) if isinstance(plan, FeedPlan)]
        states = self._states() if plans else {}
        return {plan.name: self._known(_of_plan(plan), states) for plan in plans}

    def _states(self) -> dict[str, tuple[Any, int]]:
        try:
            with closing(StoreReader.open(self._store_path)) as reader:
                return reader.states()
        except StoreError:
            return {}  # no daemon has run here yet

    def _known(self, kind: FeedKind, states: dict[str, tuple[Any, int]]) -> TimedValues:
        document, _ = states.get(kind.state, (None, 0))
        if document:
            try:
                return TimedValues.from_document(document)
            except ValueError:
                self.notes.append(f"{kind.title}: the stored values are damaged")
        try:
            return kind.updated(TimedValues(), time.time_ns())
        except SourceError as error:
            self.notes.append(f"{kind.title}: {error}")
            return TimedValues()
