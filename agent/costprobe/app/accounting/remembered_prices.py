"""The prices of devices in force, and the last ones before, which survive a restart."""

from __future__ import annotations

from threading import Lock
from typing import Any

from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.core.clock import Clock
from costprobe.domain.pricing.book import PriceBook, Terms
from costprobe.domain.pricing.carbon import NO_CARBON, CarbonBook
from costprobe.domain.pricing.price_news import Prices


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
