"""The charges of each device by its readings: priced once, for rows of `device` and for allocation."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from threading import Lock
from typing import NamedTuple

from costprobe.app.accounting.device_log import GAP_S, MAX_READINGS, SPARE_NS, DeviceLog
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.domain.costing.charges import Charge, EnergyBetween, charges_of
from costprobe.domain.pricing.book import PriceBook

# Samples of a board and of its MIG devices are taken one after the other.
MIG_LAG_NS = NS_PER_S // 10


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
    waits until its board's covers the same time, at most until its next one.

    Args:
        book: The prices.
        longest_window_s: Charges are kept for twice as long, in s, and ten minutes more; 0 keeps
            none.
        gap_s: Longest time between charges that counts as covered, in s.
    """

    def __init__(
        self, book: PriceBook, longest_window_s: float = 0.0, gap_s: float = GAP_S
    ) -> None:
        self._book = book
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

        Args:
            readings: Readings that arrived together, of devices that the book has.
            offset_ns: UTC minus CLOCK_MONOTONIC in ns.
        """
        charged: list[ChargedReading] = []
        slices: list[tuple[Reading, Device]] = []
        with self._lock:
            for reading, device in readings:
                if device.is_slice and self._book.has_name(device.parent):
                    slices.append((reading, device))
                    continue
                if device.is_board:
                    self._boards.record(reading)
                charged.append(self._charged(reading, device, offset_ns, _of_reading(reading)))
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

    def flush(self) -> list[ChargedReading]:
        """Price the readings that wait for their board's: nothing follows them."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            return [self._of_slice(*waiting_slice) for waiting_slice in waiting]

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

    def _needs_energy(self, device: Device, reading: Reading, offset_ns: int) -> bool:
        """Whether the device pays for electricity apart, at either end of a reading."""
        ends = (reading.start_ns, reading.end_ns)
        terms = [self._book.terms(device.name, t_ns + offset_ns) for t_ns in ends]
        return any(term is not None and term.electricity_per_j > 0 for term in terms)

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
        charges = charges_of(
            lambda t_ns: self._book.terms(device.name, t_ns + offset_ns),
            reading.start_ns,
            reading.end_ns,
            energy_j,
        )
        if self._keep_ns:
            readings = self._kept.setdefault(device.name, deque(maxlen=MAX_READINGS))
            readings.extend(charges)
            while readings[0].end_ns < reading.end_ns - self._keep_ns:
                readings.popleft()
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
