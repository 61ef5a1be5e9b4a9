"""Charges: what a device cost between two instants, split where its price changes.

This is the one computation of a device's cost. A charge is a row of `device`, the rows add up to
budgets and reports, and the parts of charges within a window are what is allocated: all are the
same amounts. The charges of a device follow its readings and are priced once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
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
from costprobe.core.schema import ASSUMED, make_point
from costprobe.core.units import HOUR_S
from costprobe.devices.use import GAP_S, SPARE_NS, Recent
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.electricity import Emission

# Interval at which terms are compared; a change within it is located by bisection.
STEP_NS = 10 * NS_PER_S

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
    edges_ns = [*range(start_ns, end_ns, STEP_NS), end_ns]
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
    instants_ns = range(low_ns + 1, high_ns)
    changed = bisect_left(instants_ns, True, key=lambda t_ns: not _same(before, terms_at(t_ns)))
    return low_ns + 1 + changed


# Samples of a board and of its MIG devices are taken one after the other.
MIG_LAG_NS = NS_PER_S // 10


class ChargedReading(NamedTuple):
    """A reading with the cost of its interval.

    Attributes:
        reading: The reading.
        device: Its device.
        charges: The cost, one part for each span of constant terms; of a MIG device in the interval
            of its board's reading, some milliseconds before or after its own.
    """

    reading: Reading
    device: Device
    charges: tuple[Charge, ...]


class DeviceCharges:
    """Price readings, and keep the charges of the last windows for allocation.

    A reading of a board is charged to the board and to its MIG devices of the book, so that at every
    instant they cost the board's price. A MIG device pays with its own reading, which waits until its
    board's covers the same time, at most until its next one. What a MIG device without a reading owes,
    because it was destroyed or is not read yet, its board pays two readings later.

    Args:
        book: The prices.
        longest_window_s: Charges are kept for twice as long, in s, and ten minutes more.
        gap_s: Longest time between charges that counts as covered, in s.

    Attributes:
        kept: The charges of the last windows.
    """

    def __init__(
        self, book: PriceBook, longest_window_s: float = 0.0, gap_s: float = GAP_S
    ) -> None:
        self._book = book
        # What each MIG device owes for readings of its board, the oldest first.
        self._owed: dict[str, list[Charge]] = {}
        # CLOCK_MONOTONIC ns until which each MIG device is charged.
        self._ends_ns: dict[str, int] = {}
        self._waiting: dict[str, tuple[Reading, Device, int]] = {}
        self._gap_ns = int(gap_s * NS_PER_S)
        self.kept: Recent[Charge] = Recent(int(2 * longest_window_s * NS_PER_S) + SPARE_NS)
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
        with self._lock:
            for reading, device in readings:
                if not device.is_slice or not self._book.has_name(device.parent):
                    charged.append(self._of_board(reading, device, offset_ns))
                    continue
                if (earlier := self._waiting.pop(device.name, None)) is not None:
                    charged.append(self._of_slice(*earlier))
                self._waiting[device.name] = reading, device, offset_ns
            for name, waiting in list(self._waiting.items()):
                owed = self._owed.get(name)
                if owed and owed[-1].end_ns + MIG_LAG_NS >= waiting[0].end_ns:
                    del self._waiting[name]
                    charged.append(self._of_slice(*waiting))
        return charged

    def flush(self, offset_ns: int) -> list[ChargedReading]:
        """Price the readings that wait for their board's, and what nobody paid: nothing follows them.

        Args:
            offset_ns: UTC minus CLOCK_MONOTONIC in ns.
        """
        with self._lock:
            charged = [self._of_slice(*waiting) for waiting in self._waiting.values()]
            self._waiting.clear()
            owed: dict[str, list[Charge]] = {}
            for name, charges in self._owed.items():
                board = self._book.device(name).parent
                owed.setdefault(board, []).extend(self._absent(name, charges, offset_ns))
            for board, unpaid in owed.items():
                end_ns = max((charge.end_ns for charge in unpaid), default=0)
                terms = self._book.terms(board, end_ns + offset_ns)
                paid = _with(Charge(end_ns, end_ns, terms, Decimal(0), Decimal(0)), unpaid)
                if paid.cost:
                    last = Reading(board, end_ns, end_ns, {})
                    charged.append(ChargedReading(last, self._book.device(board), (paid,)))
            self._owed.clear()
            return charged

    def _of_board(self, reading: Reading, device: Device, offset_ns: int) -> ChargedReading:
        """Charge a device of its own, and note what its MIG devices owe."""
        energy_j = _of_reading(reading)
        charges = self._charges(device.name, reading.start_ns, reading.end_ns, energy_j, offset_ns)
        for part in self._book.slices_of(device.name):
            owed = self._owed.get(part.name, [])
            # The readings of its MIG devices of the time before the last reading have come.
            late = [charge for charge in owed if charge.end_ns < reading.start_ns]
            now = self._charges(part.name, reading.start_ns, reading.end_ns, energy_j, offset_ns)
            self._owed[part.name] = [*owed[len(late) :], *now]
            unpaid = self._absent(part.name, late, offset_ns)
            charges = (*charges[:-1], _with(charges[-1], unpaid))
        return ChargedReading(reading, device, charges)

    def _of_slice(self, reading: Reading, device: Device, offset_ns: int) -> ChargedReading:
        """Charge a MIG device with what it owes, or with its time if its board is not read."""
        owed = self._owed.pop(device.name, [])
        if not owed:
            charges = self._charges(
                device.name, reading.start_ns, reading.end_ns, _unknown, offset_ns
            )
            return ChargedReading(reading, device, charges)
        joined = owed[:1]
        for charge in owed[1:]:
            if _same(charge.terms, joined[-1].terms):
                joined[-1] = _with(replace(joined[-1], end_ns=charge.end_ns), [charge])
            else:
                joined.append(charge)
        return ChargedReading(reading, device, tuple(joined))

    def _charges(
        self, device: str, start_ns: int, end_ns: int, energy_j: EnergyBetween, offset_ns: int
    ) -> tuple[Charge, ...]:
        """Return the charges of a device in an interval, of a MIG device from its last charge on."""
        since_ns = min(max(start_ns, self._ends_ns.get(device, 0)), end_ns)
        if self._book.device(device).is_slice:
            self._ends_ns[device] = end_ns
        return charges_of(
            lambda t_ns: self._book.terms(device, t_ns + offset_ns), since_ns, end_ns, energy_j
        )

    def _absent(self, device: str, owed: Iterable[Charge], offset_ns: int) -> list[Charge]:
        """Return what the board of a MIG device pays while that is not there, as far as it is known."""
        return [
            charge
            for charge in owed
            if charge.cost is not None
            and self._book.absent_terms(device, charge.end_ns + offset_ns) is not None
        ]

    def keep(self, charged: Iterable[ChargedReading]) -> None:
        """Keep the charges of readings, in order, for allocation."""
        for _, device, charges in charged:
            self.kept.add(device.name, *charges)

    def between(self, device: str, start_ns: int, end_ns: int) -> list[Charge]:
        """Return the charges of a device between two CLOCK_MONOTONIC ns, cut at both."""
        kept = self.kept.between(device, start_ns, end_ns)
        return [charge.within(start_ns, end_ns) for charge in kept]

    def covers(self, charges: Sequence[Charge], start_ns: int, end_ns: int) -> bool:
        """Whether charges leave no gap between two instants that is longer than `gap_s`."""
        ends = [
            start_ns,
            *(ns for charge in charges for ns in (charge.start_ns, charge.end_ns)),
            end_ns,
        ]
        return all(after - before <= self._gap_ns for before, after in list(pairwise(ends))[::2])


def _with(charge: Charge, others: Sequence[Charge]) -> Charge:
    """Return a charge with the amounts of others; unknown if one of them is."""

    def total(amounts: Sequence[Decimal | None]) -> Decimal | None:
        known = [amount for amount in amounts if amount is not None]
        return total_of(known) if len(known) == len(amounts) else None

    charges = [charge, *others]
    return replace(
        charge,
        hardware=total([each.hardware for each in charges]),
        electricity=total([each.electricity for each in charges]),
    )


def _unknown(start_ns: int, end_ns: int) -> None:  # noqa: ARG001 - the energy between two instants
    return None


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
        fields["price_assumed"] = terms.rate.plan == ASSUMED or None
        fields["cost"] = None if charge.cost is None else float(charge.cost)
    own_tags = {
        "device": device.name,
        "kind": device.kind,
        "uuid": device.uuid,
        "model": device.model,
        "currency": terms.rate.currency if terms is not None else "",
    }
    return make_point("device", {**tags, **own_tags}, fields, time_ns)


def reading_within(charged: ChargedReading, charge: Charge) -> Reading:
    """Return the part of a reading that one of its charges covers: totals by its share of the time."""
    reading, charges = charged.reading, charged.charges
    if len(charges) == 1:
        return reading
    share = (charge.end_ns - charge.start_ns) / (charges[-1].end_ns - charges[0].start_ns)
    fields = {
        name: value * share if name in _TOTALS and isinstance(value, float) else value
        for name, value in reading.fields.items()
    }
    return Reading(reading.device, charge.start_ns, charge.end_ns, fields)
