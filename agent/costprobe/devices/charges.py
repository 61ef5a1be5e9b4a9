"""Charges: what a device cost between two instants, split where its price changes.

This is the one computation of a device's cost. A charge is a row of `device`, the rows add up to
budgets and reports, and the parts of charges within a window are what is allocated: all are the
same amounts. The charges of a device follow its readings and are priced once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise
from threading import Lock
from typing import NamedTuple

from costprobe.core.money import divided, exact, rounded, total_of
from costprobe.core.records import (
    NS_PER_S,
    Device,
    FieldValue,
    Point,
    Reading,
)
from costprobe.core.schema import make_point
from costprobe.core.units import HOUR_S
from costprobe.devices.use import (
    GAP_S,
    MAX_READINGS,
    SPARE_NS,
    DeviceLog,
)
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.electricity import Emission

# Interval at which terms are compared; a change within it is located by bisection.
STEP_NS = 10 * NS_PER_S
MAX_STEPS = 10_000

EnergyBetween = Callable[[int, int], float | None]
TermsAt = Callable[[int], Terms | None]


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of a device between two instants, under constant terms.

    Attributes:
        start_ns: Start, CLOCK_MONOTONIC ns.
        end_ns: End.
        terms: The terms in force; None where nothing prices the device.
        hardware: Currency for the time of the device, used or not; None without terms.
        electricity: Currency for electricity that is paid for apart, of a MIG device its part of the
            board's; None without terms, or where the energy is unknown.
    """

    start_ns: int
    end_ns: int
    terms: Terms | None
    hardware: Decimal | None = None
    electricity: Decimal | None = None

    @property
    def cost(self) -> Decimal | None:
        """Currency, hardware and electricity; None if either is unknown, as one alone is too low."""
        if self.hardware is None or self.electricity is None:
            return None
        return total_of([self.hardware, self.electricity])

    def within(self, start_ns: int, end_ns: int) -> Charge:
        """Return the part between two instants; cost is spread evenly over its time."""
        first, last = max(self.start_ns, start_ns), min(self.end_ns, end_ns)
        if (first, last) == (self.start_ns, self.end_ns):
            return self
        last = max(first, last)
        hardware, electricity = (
            None if amount is None else self._part(amount, first, last)
            for amount in (self.hardware, self.electricity)
        )
        return Charge(first, last, self.terms, hardware, electricity)

    def _part(self, amount: Decimal, first: int, last: int) -> Decimal:
        """Return the part of an amount between two instants; parts that follow each other add up to it."""
        if first >= last:
            return Decimal(0)
        until_last, until_first = (
            divided(amount, [at - self.start_ns, self.end_ns - at])[0] for at in (last, first)
        )
        return total_of([until_last, -until_first])


def charges_of(
    terms_at: TermsAt, start_ns: int, end_ns: int, energy_j: EnergyBetween
) -> tuple[Charge, ...]:
    """Return the charges of an interval, one for each span of constant terms.

    A price change that is reversed within ten seconds may be missed.

    Args:
        terms_at: The terms in force at an instant.
        start_ns: Start of the interval in ns.
        end_ns: Its end.
        energy_j: Returns the joules between two instants; None if unknown.
    """
    return tuple(
        Charge(
            since_ns,
            until_ns,
            terms,
            None if terms is None else _hardware(terms, until_ns - since_ns),
            None if terms is None else _electricity(terms, energy_j, since_ns, until_ns),
        )
        for since_ns, until_ns, terms in _spans(terms_at, start_ns, end_ns)
    )


def _hardware(terms: Terms, length_ns: int) -> Decimal:
    return rounded(terms.rate.per_hour * length_ns / (int(HOUR_S) * NS_PER_S))


def _electricity(
    terms: Terms, energy_j: EnergyBetween, start_ns: int, end_ns: int
) -> Decimal | None:
    if terms.electricity_per_j == 0.0:
        return Decimal(0)
    drawn_j = energy_j(start_ns, end_ns)
    if drawn_j is None:
        return None
    return rounded(exact(terms.electricity_per_j) * exact(drawn_j))


def _spans(
    terms_at: TermsAt, start_ns: int, end_ns: int
) -> Sequence[tuple[int, int, Terms | None]]:
    """Return the spans of constant terms: start, end and terms of each."""
    step_ns = max(STEP_NS, (end_ns - start_ns) // MAX_STEPS)
    edges_ns = [*range(start_ns, end_ns, step_ns), end_ns]
    spans: list[tuple[int, int, Terms | None]] = []
    last, since_ns = terms_at(start_ns), start_ns
    for low_ns, high_ns in pairwise(edges_ns):
        after = terms_at(high_ns)
        if not _same(last, after):
            change_ns = _change_ns(terms_at, last, low_ns, high_ns)
            spans.append((since_ns, change_ns, last))
            last, since_ns = after, change_ns
    spans.append((since_ns, end_ns, last))
    return [span for span in spans if span[1] > span[0]] or spans


def _same(first: Terms | None, other: Terms | None) -> bool:
    if first is None or other is None:
        return first is other
    return (
        first.rate.price == other.rate.price
        and first.rate.plan == other.rate.plan
        and first.electricity_per_j == other.electricity_per_j
    )


def _change_ns(terms_at: TermsAt, before: Terms | None, low_ns: int, high_ns: int) -> int:
    """Return the first instant with other terms within a step."""
    while high_ns - low_ns > 1:
        middle_ns = (low_ns + high_ns) // 2
        if _same(before, terms_at(middle_ns)):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
    return high_ns


# Samples of a board and of its MIG devices are taken one after the other.
MIG_LAG_NS = NS_PER_S // 10
# Readings of a board after which the readings of its MIG devices of that time have come.
UNSETTLED = 2


class ChargedReading(NamedTuple):
    """A reading with the cost of its interval.

    Attributes:
        reading: The reading.
        device: Its device.
        charges: The cost, one part for each span of constant terms.
    """

    reading: Reading
    device: Device
    charges: tuple[Charge, ...]


class DeviceCharges:
    """Price readings, and keep the charges of the last windows for allocation.

    A MIG device has no energy reading: it is charged its part of its board's, so that its reading
    waits until its board's covers the same time, at most until its next one. Where a MIG device of
    the book has no reading, because it was destroyed or is not read yet, its board pays for its
    slices, two readings later: at every instant a board and its MIG devices cost the board's price.

    Args:
        book: The prices.
        longest_window_s: Charges are kept for twice as long, in s, and ten minutes more; 0 keeps
            none.
        gap_s: Longest time between charges that counts as covered, in s.
        before: The charges of the book before, for other devices, which get no more readings when
            these get their first.
    """

    def __init__(
        self,
        book: PriceBook,
        longest_window_s: float = 0.0,
        gap_s: float = GAP_S,
        before: DeviceCharges | None = None,
    ) -> None:
        self._book = book
        self._before = before
        # CLOCK_MONOTONIC ns until which each device is charged, a MIG device by itself or its board.
        self._ends_ns: dict[str, int] = {}
        # Readings of boards in which it is not known yet which MIG devices have readings.
        self._unsettled: dict[str, deque[Reading]] = {}
        self._keep_ns = int(2 * longest_window_s * NS_PER_S) + SPARE_NS if longest_window_s else 0
        self._gap_ns = int(gap_s * NS_PER_S)
        self._boards = DeviceLog(0.0, gap_s)
        self._waiting: dict[str, tuple[Reading, Device, int]] = {}
        self._kept: dict[str, deque[Charge]] = {}
        self._lock = Lock()

    def charge(
        self, readings: Iterable[tuple[Reading, Device]], offset_ns: int
    ) -> list[ChargedReading]:
        """Price readings; those of MIG devices may be returned by a later call.

        The caller stores them, and then calls `keep`: what is allocated is in a row.

        Args:
            readings: Readings that arrived together, of devices that the book has.
            offset_ns: UTC minus CLOCK_MONOTONIC in ns.
        """
        charged: list[ChargedReading] = []
        slices: list[tuple[Reading, Device]] = []
        with self._lock:
            if self._before is not None:
                self._follow(self._before)
                self._before = None
            for reading, device in readings:
                if device.is_slice and self._book.has_name(device.parent):
                    slices.append((reading, device))
                    continue
                if device.is_board:
                    self._boards.record(reading)
                charged.append(self._charged(reading, device, offset_ns, _of_reading(reading)))
                if self._book.slices_of(device.name):
                    unsettled = self._unsettled.setdefault(device.name, deque())
                    unsettled.append(reading)
                    charged[-1] = self._settled(charged[-1], offset_ns, UNSETTLED)
            for name, (reading, device, own_ns) in list(self._waiting.items()):
                is_followed = any(later.device == name for later, _ in slices)
                if is_followed or self._is_covered(reading, device):
                    del self._waiting[name]
                    charged.append(self._of_slice(reading, device, own_ns))
            for reading, device in slices:
                if self._needs_energy(device, reading, offset_ns) and not self._is_covered(
                    reading, device
                ):
                    self._waiting[device.name] = reading, device, offset_ns
                else:
                    charged.append(self._of_slice(reading, device, offset_ns))
        return charged

    def flush(self, offset_ns: int) -> list[ChargedReading]:
        """Price the readings that wait for their board's, and what nobody paid: nothing follows them.

        Args:
            offset_ns: UTC minus CLOCK_MONOTONIC in ns.
        """
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            charged = [self._of_slice(*waiting_slice) for waiting_slice in waiting]
            for board, readings in self._unsettled.items():
                end_ns = readings[-1].end_ns
                empty = Charge(end_ns, end_ns, self._book.terms(board, end_ns + offset_ns))
                nothing = replace(empty, hardware=Decimal(0), electricity=Decimal(0))
                last = Reading(board, end_ns, end_ns, {})
                rest = ChargedReading(last, self._book.device(board), (nothing,))
                settled = self._settled(rest, offset_ns, 0)
                if settled.charges[-1].cost:
                    charged.append(settled)
            return charged

    def _follow(self, before: DeviceCharges) -> None:
        """Begin where the charges of the book before ended."""
        for device, end_ns in before._ends_ns.items():
            if not self._book.has_name(device):
                continue
            self._ends_ns[device] = end_ns
            for part in self._book.slices_of(device):
                self._ends_ns[part.name] = end_ns

    def _settled(self, charged: ChargedReading, offset_ns: int, left: int) -> ChargedReading:
        """Add to a board's charge what its MIG devices without a reading did not pay, but in the last few."""
        board, added = charged.device.name, list[Charge]()
        unsettled = self._unsettled[board]
        while len(unsettled) > left:
            reading = unsettled.popleft()
            for part in self._book.slices_of(board):
                since_ns = max(reading.start_ns, self._ends_ns.get(part.name, 0))
                if since_ns < reading.end_ns:
                    self._ends_ns[part.name] = reading.end_ns
                    terms_at = partial(self._absent_terms, part.name, offset_ns)
                    energy_j = partial(self._boards.energy_j, board)
                    added += charges_of(terms_at, since_ns, reading.end_ns, energy_j)
        *first, last = charged.charges
        amounts = [charge for charge in added if charge.cost is not None]
        if not amounts or last.cost is None:
            return charged
        paid = replace(
            last,
            hardware=total_of(
                [last.hardware or Decimal(0), *(c.hardware or Decimal(0) for c in amounts)]
            ),
            electricity=total_of(
                [last.electricity or Decimal(0), *(c.electricity or Decimal(0) for c in amounts)]
            ),
        )
        return charged._replace(charges=(*first, paid))

    def keep(self, charged: Iterable[ChargedReading]) -> None:
        """Keep the charges of readings, in order, for allocation."""
        if not self._keep_ns:
            return
        with self._lock:
            for reading, device, charges in charged:
                kept = self._kept.setdefault(device.name, deque(maxlen=MAX_READINGS))
                kept.extend(charges)
                while kept[0].end_ns < reading.end_ns - self._keep_ns:
                    kept.popleft()

    def between(self, device: str, start_ns: int, end_ns: int) -> list[Charge]:
        """Return the charges of a device between two CLOCK_MONOTONIC ns, cut at both."""
        with self._lock:
            charged = self._kept.get(device, deque())
            first = bisect_right(charged, start_ns, key=lambda charge: charge.end_ns)
            return [
                charge.within(start_ns, end_ns)
                for charge in islice(charged, first, None)
                if charge.start_ns < end_ns
            ]

    def covers(self, charges: Sequence[Charge], start_ns: int, end_ns: int) -> bool:
        """Whether charges leave no gap between two instants that is longer than `gap_s`."""
        ends = [
            start_ns,
            *(ns for charge in charges for ns in (charge.start_ns, charge.end_ns)),
            end_ns,
        ]
        return all(after - before <= self._gap_ns for before, after in list(pairwise(ends))[::2])

    def first_ns(self, device: str) -> int | None:
        """Return the CLOCK_MONOTONIC ns of the start of the oldest charge kept; None without any."""
        with self._lock:
            charged = self._kept.get(device)
            return charged[0].start_ns if charged else None

    def seen_ns(self, device: str) -> int:
        """Return the CLOCK_MONOTONIC ns until which a device was charged; 0 before the first."""
        with self._lock:
            charged = self._kept.get(device)
            return charged[-1].end_ns if charged else 0

    def _absent_terms(self, device: str, offset_ns: int, t_ns: int) -> Terms | None:
        return self._book.absent_terms(device, t_ns + offset_ns)

    def _needs_energy(self, device: Device, reading: Reading, offset_ns: int) -> bool:
        """Whether the device pays for electricity apart, at either end of a reading."""
        ends = (reading.start_ns, reading.end_ns)
        terms = [self._book.terms(device.name, t_ns + offset_ns) for t_ns in ends]
        return any(term is not None and term.electricity_per_j != 0 for term in terms)

    def _is_covered(self, reading: Reading, device: Device) -> bool:
        return self._boards.seen_ns(device.parent) + MIG_LAG_NS >= reading.end_ns

    def _of_slice(self, reading: Reading, device: Device, offset_ns: int) -> ChargedReading:
        return self._charged(
            reading,
            device,
            offset_ns,
            lambda since_ns, until_ns: self._boards.energy_j(device.parent, since_ns, until_ns),
        )

    def _charged(
        self, reading: Reading, device: Device, offset_ns: int, energy_j: EnergyBetween
    ) -> ChargedReading:
        start_ns = reading.start_ns
        if device.is_slice:
            # Its board may have paid for the beginning.
            start_ns = min(max(start_ns, self._ends_ns.get(device.name, 0)), reading.end_ns)
        self._ends_ns[device.name] = reading.end_ns
        charges = charges_of(
            lambda t_ns: self._book.terms(device.name, t_ns + offset_ns),
            start_ns,
            reading.end_ns,
            energy_j,
        )
        return ChargedReading(reading, device, charges)


def _of_reading(reading: Reading) -> EnergyBetween:
    """Return the energy of a part of a reading: spread evenly over its time."""
    energy_j = reading.fields.get("energy_j")
    length_ns = reading.end_ns - reading.start_ns

    def between(since_ns: int, until_ns: int) -> float | None:
        if not isinstance(energy_j, float):
            return None
        return energy_j * ((until_ns - since_ns) / length_ns) if length_ns else energy_j

    return between


# Fields of a reading that are totals of its interval.
_TOTALS = frozenset({"energy_j", "dram_energy_j", "throttle_power_s", "throttle_thermal_s"})


def device_point(
    reading: Reading,
    device: Device,
    charge: Charge | None,
    tags: Mapping[str, str],
    time_ns: int,
    emitted: Emission | None = None,
) -> Point:
    """Return a row of `device`: the reading, and the device's cost in its interval.

    Args:
        reading: Telemetry of an interval.
        device: The device.
        charge: Its cost in the interval; None, or without terms, where nothing prices the device.
        tags: Host and static labels.
        time_ns: UTC in ns of the interval's end.
        emitted: Emissions of its electricity; None if unknown.
    """
    fields: dict[str, FieldValue | None] = dict(reading.fields)
    if emitted is not None:
        fields |= {
            "carbon_g": emitted.g,
            "carbon_energy_j": reading.fields.get("energy_j"),
            "carbon_method": emitted.method,
        }
    terms = None if charge is None else charge.terms
    if charge is not None and terms is not None:
        fields["price_rate_per_h"] = terms.per_s * HOUR_S
        fields["price_stale"] = terms.rate.is_stale or None
        fields["cost"] = None if charge.cost is None else float(charge.cost)
    own_tags = {
        "device": device.name,
        "kind": device.kind,
        "uuid": device.uuid,
        "model": device.model,
        "currency": terms.rate.currency if terms is not None else "",
    }
    return make_point("device", {**tags, **own_tags}, fields, time_ns)


def reading_within(reading: Reading, charge: Charge) -> Reading:
    """Return the part of a reading that a charge covers: totals by its share of the time."""
    if (charge.start_ns, charge.end_ns) == (reading.start_ns, reading.end_ns):
        return reading
    share = (charge.end_ns - charge.start_ns) / (reading.end_ns - reading.start_ns)
    fields = {
        name: value * share if name in _TOTALS and isinstance(value, float) else value
        for name, value in reading.fields.items()
    }
    return Reading(reading.device, charge.start_ns, charge.end_ns, fields)
