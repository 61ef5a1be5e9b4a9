"""Price every reading and probe run, and store them as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from costprobe.app.accounting.device_charges import ChargedReading, DeviceCharges
from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.core.clock import Clock, row_ns, utc_ns, whole_ms
from costprobe.core.records import NS_PER_S, Device, Event, Point, Reading
from costprobe.domain.costing.carbon import emission
from costprobe.domain.costing.probe.account import Prices, ProbeState, account_run
from costprobe.domain.costing.probe.news import price_events
from costprobe.domain.costing.probe.points import device_point, event_point, reading_within
from costprobe.domain.costing.probe.rolling import WINDOWS_S, RollingCosts, RollingSample
from costprobe.domain.costing.probe.run import MeasuredRun, ProbeReport
from costprobe.domain.pricing.book import PriceBook, Terms
from costprobe.domain.pricing.carbon import NO_CARBON, CarbonBook

# Costs per inference of (device, probe, currency) since a UTC ns, oldest first.
CostHistory = Callable[[str, str, str, int], Iterable[RollingSample]]


class Accounts:
    """Price measurements and store them.

    Args:
        book: The prices.
        ledger: Stores rows.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        history: Stored costs, from which the rolling windows are filled after a start.
        carbon: Carbon intensities.
        charges: Prices readings, and keeps the charges for the allocation to services.
    """

    def __init__(
        self,
        book: PriceBook,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        history: CostHistory,
        carbon: CarbonBook = NO_CARBON,
        *,
        charges: DeviceCharges | None = None,
    ) -> None:
        self._book = book
        self._charges = charges or DeviceCharges(book)
        self._carbon = carbon
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._history = history
        self._states: dict[tuple[str, str], ProbeState] = {}
        self._last_terms: dict[str, Terms] = {}
        self._lock = Lock()

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Store readings as priced rows of `device`, committed together.

        The sensor child's supervisor calls this with the readings that arrived together. Readings
        of a device that is not in the price book yet are skipped. A reading in which the price
        changed becomes a row for each price.
        """
        priced = [(reading, device) for reading, device in readings if self._book.has(device)]
        offset_ns = utc_ns(self._clock, 0)
        self._store(self._charges.charge(priced, offset_ns), offset_ns)

    def close(self) -> None:
        """Store the rows of MIG devices that wait for their board's reading."""
        self._store(self._charges.flush(), utc_ns(self._clock, 0))

    def take_event(self, event: Event) -> None:
        """Store an event."""
        self._ledger.append([event_point(event, self._tags)])

    def take_probe(self, run: MeasuredRun) -> ProbeReport:
        """Store a probe run as priced rows of `probe` and `cost`, with its events."""
        device, probe = run.result.device, run.result.probe
        time_ns = row_ns(self._clock, run.result.window_end_ns)
        prices = self._prices(device, time_ns)
        before = self._state(run, prices.terms, time_ns)
        accounted = account_run(run, prices, before, self._tags, time_ns)
        self._states[device, probe] = accounted.state
        document = accounted.state.document()
        changed = {_state_name(device, probe): document} if document != before.document() else {}
        # In one transaction: a crash between them would lose or repeat an event.
        self._ledger.append(accounted.rows, {**changed, **_terms_state(device, prices)})
        return accounted.report

    def terms_now(self, device: str) -> Terms | None:
        """Return the price terms in force for a device; None without a price."""
        return self._book.terms(device, self._clock.time_ns())

    def _store(self, charged: Iterable[ChargedReading], offset_ns: int) -> None:
        rows: list[Point] = []
        states: dict[str, Any] = {}
        for reading in charged:
            time_ns = whole_ms(reading.reading.end_ns + offset_ns)
            prices = self._prices(reading.device.name, time_ns)
            rows += self._rows_of(reading, prices, time_ns, offset_ns)
            states.update(_terms_state(reading.device.name, prices))
        if rows or states:
            self._ledger.append(rows, states)

    def _rows_of(
        self, charged: ChargedReading, prices: Prices, read_ns: int, offset_ns: int
    ) -> list[Point]:
        device = charged.device
        rows = []
        for charge in charged.charges:
            time_ns = whole_ms(charge.end_ns + offset_ns)
            part = reading_within(charged.reading, charge)
            energy_j = part.fields.get("energy_j")
            intensity = self._carbon.intensity(device.name, time_ns)
            emitted = emission(energy_j if isinstance(energy_j, float) else None, intensity)
            rows.append(device_point(part, device, charge, self._tags, time_ns, emitted))
        events = price_events(device.name, prices.terms_before, prices.terms, read_ns)
        return [*rows, *(event_point(event, self._tags) for event in events)]

    def _prices(self, device: str, time_ns: int) -> Prices:
        """Return the prices in force, and record their terms as the previous ones."""
        terms = self._book.terms(device, time_ns)
        intensity = self._carbon.intensity(device, time_ns)
        if terms is None:
            return Prices(None, None, intensity)
        with self._lock:
            before = self._last_terms.get(device)
            if before is None:
                before = restored(self._ledger, _terms_name(device), Terms.from_document)
            self._last_terms[device] = terms
        return Prices(terms, before, intensity)

    def _state(self, run: MeasuredRun, terms: Terms | None, time_ns: int) -> ProbeState:
        """Return the probe's state, with rolling costs in the currency of the terms in force."""
        device, probe = run.result.device, run.result.probe
        state = self._states.get((device, probe))
        if state is None:
            name = _state_name(device, probe)
            state = restored(self._ledger, name, ProbeState.from_document) or ProbeState()
        if terms is None:
            return state
        currency = terms.rate.currency
        # After the wall clock was set back only the stored rows are complete: samples taken while it
        # was ahead removed older ones.
        is_continued = state.costs is not None and state.costs.newest_ns <= time_ns
        if is_continued and state.currency == currency:
            return state
        since_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        stored = self._history(device, probe, currency, since_ns)
        costs = RollingCosts.of(run.every_s, (cost for cost in stored if cost.time_ns < time_ns))
        return replace(state, costs=costs, currency=currency)


def _state_name(device: str, probe: str) -> str:
    return f"probe {device} {probe}"


def _terms_name(device: str) -> str:
    return f"terms {device}"


def _terms_state(device: str, prices: Prices) -> dict[str, Any]:
    """Return the document of a device's terms if they changed, to be stored with the rows of the change."""
    if prices.terms is None or prices.terms == prices.terms_before:
        return {}
    return {_terms_name(device): prices.terms.to_document()}
