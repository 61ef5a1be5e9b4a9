"""Price every reading, and store it as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from costprobe.adapters.store.ledger import Ledger
from costprobe.core.clock import Clock, utc_ns, whole_ms
from costprobe.core.records import (
    Device,
    Event,
    Point,
    Reading,
)
from costprobe.core.schema import event_point
from costprobe.devices.charges import ChargedReading, DeviceCharges, device_point, reading_within
from costprobe.pricing.book import Prices, price_events
from costprobe.pricing.electricity import emission
from costprobe.pricing.prices import RememberedPrices, terms_state


class Accounts:
    """Price readings and store them.

    Args:
        prices: The prices, with the terms before.
        ledger: Stores rows.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        charges: Prices readings, and keeps the charges for the allocation to services.
    """

    def __init__(
        self,
        prices: RememberedPrices,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        *,
        charges: DeviceCharges | None = None,
    ) -> None:
        self._prices = prices
        self._charges = charges or DeviceCharges(prices.book)
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Store readings as priced rows of `device`, committed together.

        The sensor child's supervisor calls this with the readings that arrived together. Readings
        of a device that is not in the price book yet are skipped. A reading in which the price
        changed becomes a row for each price.
        """
        priced = [
            (reading, device) for reading, device in readings if self._prices.book.has(device)
        ]
        offset_ns = utc_ns(self._clock, 0)
        self._store(self._charges.charge(priced, offset_ns), offset_ns)

    def close(self) -> None:
        """Store the rows of MIG devices that wait for their board's reading."""
        offset_ns = utc_ns(self._clock, 0)
        self._store(self._charges.flush(offset_ns), offset_ns)

    def take_event(self, event: Event) -> None:
        """Store an event."""
        self._ledger.append([event_point(event, self._tags)])

    def _store(self, charged: Sequence[ChargedReading], offset_ns: int) -> None:
        rows: list[Point] = []
        states: dict[str, Any] = {}
        for reading in charged:
            time_ns = whole_ms(reading.reading.end_ns + offset_ns)
            prices = self._prices.at(reading.device.name, time_ns)
            rows += self._rows_of(reading, prices, time_ns, offset_ns)
            states.update(terms_state(reading.device.name, prices))
        if rows or states:
            self._ledger.append(rows, states)
        self._charges.keep(charged)

    def _rows_of(
        self, charged: ChargedReading, prices: Prices, read_ns: int, offset_ns: int
    ) -> list[Point]:
        device = charged.device
        rows = []
        for charge in charged.charges:
            time_ns = whole_ms(charge.end_ns + offset_ns)
            part = reading_within(charged, charge)
            energy_j = part.fields.get("energy_j")
            intensity = self._prices.carbon.intensity(device.name, time_ns)
            emitted = emission(energy_j if isinstance(energy_j, float) else None, intensity)
            rows.append(device_point(part, device, charge, self._tags, time_ns, emitted))
        events = price_events(device.name, prices.terms_before, prices.terms, read_ns)
        return [*rows, *(event_point(event, self._tags) for event in events)]
