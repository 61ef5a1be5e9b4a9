"""The books: every reading and every probe result becomes priced rows and, at times, events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from agent.clock import Clock, row_ns
from agent.costing.carbon import Emission, emission
from agent.costing.energy import LastKnownEnergy, ProbeEnergy, energy_per_inference
from agent.costing.news import price_events, software_event
from agent.costing.points import cost_point, device_point, event_point, probe_point
from agent.costing.probe_basis import cost_sample
from agent.costing.rolling import WINDOWS_S, Rolled, RollingWindows
from agent.model import (
    BOARD,
    NS_PER_S,
    CostSample,
    Device,
    Energy,
    Event,
    FieldValue,
    Point,
    ProbeResult,
    Reading,
)
from agent.pricing.book import TOGETHER, PriceBook, Terms
from agent.pricing.carbon import NO_CARBON, CarbonBook


class Ledger(Protocol):
    """Where rows and small documents are kept: the store, or memory for a probe by hand."""

    def append(self, points: Iterable[Point]) -> None:
        """Keeps rows."""
        ...

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """A named document; None if there is none."""
        ...

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keeps a named document."""
        ...


class MemoryLedger:
    """A ledger that forgets: for a single probe run by hand."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._states: dict[str, Any] = {}

    def append(self, points: Iterable[Point]) -> None:
        """Keeps rows until the process ends."""
        self.points.extend(points)

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """A named document; None if there is none."""
        return self._states.get(name)

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keeps a named document until the process ends."""
        self._states[name] = document


@dataclass(frozen=True, slots=True)
class Measured:
    """A probe run with everything that was learnt about it.

    Attributes:
        result: What the probe measured.
        energy: The device's energy in the region; None where it is not known.
        energy_absent: Why it is not known.
        activity: The device's conditions in the region, as fields, where they are known.
        every_s: Seconds between runs.
        curve: Points of a search of the batch; empty if there was none.
        board: Lasting identity of the board it ran on, of several in their order; empty where
            there is none.
    """

    result: ProbeResult
    energy: Energy | None
    energy_absent: str
    activity: Mapping[str, FieldValue | None]
    every_s: float
    curve: Sequence[Mapping[str, float]] = ()
    board: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What one probe run came to: a readable line and the CLI's JSON are made of it.

    Attributes:
        result: What the probe measured.
        energy: Joules per inference; None where they are not known.
        energy_absent: Why they are not known.
        cost: Money per inference; None where nothing prices it.
        terms: The price terms in force; None where nothing prices the device.
        rolled: Rolling windows by name.
        points: The rows that were kept.
        time_ns: UTC in ns of the region's end.
        emitted: Grams of CO2-equivalent per inference; None where not known.
    """

    result: ProbeResult
    energy: ProbeEnergy | None
    energy_absent: str
    cost: CostSample | None
    terms: Terms | None
    rolled: Mapping[str, Rolled]
    points: tuple[Point, ...]
    time_ns: int
    emitted: Emission | None = None


class Accounts:
    """Prices what was measured and keeps it.

    Args:
        book: The prices.
        ledger: Where rows are kept.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        history: Costs per inference of a device's probe since a UTC ns, oldest first, to fill
            the rolling windows after a start.
        carbon: What electricity emits.
    """

    def __init__(
        self,
        book: PriceBook,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        history: Callable[[str, str, str, int], Iterable[tuple[int, float]]],
        carbon: CarbonBook = NO_CARBON,
    ) -> None:
        self._book = book
        self._carbon = carbon
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._history = history
        self._last_known = LastKnownEnergy()
        self._rolling: dict[tuple[str, str, str], RollingWindows] = {}
        self._last_terms: dict[str, Terms] = {}
        self._lock = Lock()

    def take_reading(self, reading: Reading, device: Device) -> None:
        """Keeps a reading as a row of `device`, with its price."""
        self.take_readings([(reading, device)])

    def take_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Keeps readings as rows of `device`, with their prices, committed together."""
        rows = [self._device_row(reading, device) for reading, device in readings]
        if rows:
            self._ledger.append(rows)

    def _device_row(self, reading: Reading, device: Device) -> Point:
        time_ns = row_ns(self._clock, reading.end_ns)
        terms = self._terms(device.name, time_ns)
        energy_j = reading.fields.get("energy_j")
        emitted = emission(
            energy_j if isinstance(energy_j, float) else None,
            self._carbon.intensity(device.name, time_ns),
        )
        return device_point(reading, device, terms, self._tags, time_ns, emitted)

    def keep(self, rows: Iterable[Point]) -> None:
        """Keeps rows that were measured and priced elsewhere."""
        self._ledger.append(rows)

    def take_event(self, event: Event) -> None:
        """Keeps an event."""
        self._ledger.append([event_point(event, self._tags)])

    def take_probe(self, measured: Measured) -> ProbeReport:
        """Prices a probe run and keeps it as rows of `probe` and `cost`, committed together."""
        result = measured.result
        time_ns = row_ns(self._clock, result.region_end_ns)
        energy = self._energy(measured)
        points = [probe_point(result, energy, measured.activity, self._tags, time_ns)]
        terms = self._terms(result.device, time_ns)
        emitted = emission(
            energy.per_inference_j if energy else None,
            self._carbon.intensity(result.device, time_ns),
        )
        cost = self._cost(result, energy, terms)
        rolled: Mapping[str, Rolled] = {}
        if cost is not None:
            rolled = self._roll(measured, cost, time_ns)
            method = energy.method if energy else None
            row = cost_point(cost, result, rolled, method, self._tags, time_ns, emitted=emitted)
            points.append(row)
        self._ledger.append(points)
        self._notice_change(measured, time_ns)
        return ProbeReport(
            result,
            energy,
            measured.energy_absent,
            cost,
            terms,
            rolled,
            tuple(points),
            time_ns,
            emitted,
        )

    def terms_now(self, device: str) -> Terms | None:
        """The price terms in force for a device now."""
        return self._book.terms(device, self._clock.time_ns())

    def _energy(self, measured: Measured) -> ProbeEnergy | None:
        if measured.energy is None:
            return self._last_known.of(measured.result)
        energy = energy_per_inference(measured.energy, measured.result)
        self._last_known.remember(measured.result, energy)
        return energy

    def _cost(
        self, result: ProbeResult, energy: ProbeEnergy | None, terms: Terms | None
    ) -> CostSample | None:
        if terms is None:
            return None
        return cost_sample(
            terms,
            self._reference(result, terms),
            region_s=result.inferring_s,
            inferences=result.inferences,
            energy_per_inference_j=energy.per_inference_j if energy else None,
        )

    def _reference(self, result: ProbeResult, terms: Terms) -> Terms:
        """The terms in force when this device's probe was first priced in this currency."""
        name = f"reference {result.device} {result.probe}"
        kept = self._ledger.state(name)
        if kept is not None:
            reference = Terms.from_document(kept)
            if reference.rate.currency == terms.rate.currency:
                return reference
        self._ledger.put_state(name, terms.to_document())
        return terms

    def _roll(self, measured: Measured, cost: CostSample, time_ns: int) -> dict[str, Rolled]:
        result = measured.result
        key = (result.device, result.probe, cost.currency)
        windows = self._rolling.get(key)
        # Anew also where the calendar was set back: while it was ahead, others were too old to keep.
        if windows is None or windows.newest_ns > time_ns:
            windows = self._rolling[key] = RollingWindows(measured.every_s)
            since_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
            for sample_ns, value in self._history(*key, since_ns):
                if sample_ns < time_ns:
                    windows.add(sample_ns, value)
        windows.add(time_ns, cost.per_inference)
        return windows.summaries(time_ns)

    def _terms(self, device: str, time_ns: int) -> Terms | None:
        """The terms in force, with an event when the rate is not the one seen before."""
        terms = self._book.terms(device, time_ns)
        if terms is None:
            return None
        name = f"terms {device}"
        with self._lock:
            before = self._last_terms.get(device)
            if before is None and (kept := self._ledger.state(name)) is not None:
                before = Terms.from_document(kept)
            self._last_terms[device] = terms
        if before != terms:
            self._ledger.put_state(name, terms.to_document())
            # Of several devices that work as one, each tells of its own.
            if before is not None and TOGETHER not in device:
                for event in price_events(device, before, terms, time_ns):
                    self.take_event(event)
        return terms

    def _notice_change(self, measured: Measured, time_ns: int) -> None:
        """An event when a probe runs on other software than before, or on another board."""
        result = measured.result
        name = f"software {result.device} {result.probe}"
        kept = self._ledger.state(name)
        known = kept if isinstance(kept, dict) else {}
        # What was not known, or is not, has not changed.
        old_board = known.get(BOARD) or measured.board
        board = measured.board or old_board
        now = {"fingerprint": result.fingerprint, "software": dict(result.software), BOARD: board}
        if known and (known.get("fingerprint") != result.fingerprint or old_board != board):
            before = {**(known.get("software") or {}), BOARD: old_board}
            after = {**result.software, BOARD: board}
            self.take_event(software_event(result, before, after, time_ns))
        if kept != now:
            self._ledger.put_state(name, now)
