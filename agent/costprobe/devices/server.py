"""The energy of the whole server against that of its devices: the rest, and what its electricity costs.

The server's energy is not added to the cost of its devices, which no figure of this file changes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import fsum
from typing import Any, Final, Literal, NamedTuple

from costprobe.adapters.redfish.power import (
    POWER_W_MAX,
    PowerError,
    PowerReading,
    ServerPowerConfig,
    read_power,
)
from costprobe.adapters.store.ledger import Ledger
from costprobe.core.clock import Clock, row_ns, utc_ns
from costprobe.core.money import exact, rounded
from costprobe.core.records import NS_PER_S, Device, FieldValue, Reading
from costprobe.core.schema import make_point
from costprobe.core.units import HOUR_S, KWH_J, duration_words
from costprobe.devices.settings import TelemetryConfig
from costprobe.devices.use import DeviceLog, longest_gap_s
from costprobe.pricing.book import PriceBook

logger = logging.getLogger(__name__)

# An increase of the counter by so many of its steps is known to a tenth.
COUNTER_STEPS_MIN: Final = 10
# Power at two instants differs from the mean between them; a counter of another unit differs by more.
DISAGREEMENT: Final = 3.0
# Reads that fail leave a gap: a longer interval is not bridged.
LONGEST_PERIODS: Final = 2.5
# Intervals over which the server's energy must exceed that of its devices.
COMPARED: Final = 10
# The same figure for so long, while the devices' power changes by more than this, is an old one.
STUCK_S: Final = 600.0
CHANGE_W: Final = 50.0
CHANGE_SHARE: Final = 0.1
# A counter is not taken for finer than that: figures of single precision have more digits.
FINEST_KWH: Final = Decimal("0.001")


class TimedReading(NamedTuple):
    """A reading, and its CLOCK_MONOTONIC ns."""

    t_ns: int
    reading: PowerReading


class ServerInterval(NamedTuple):
    """The energy of a server between two readings.

    Attributes:
        start_ns: CLOCK_MONOTONIC ns.
        end_ns: CLOCK_MONOTONIC ns.
        energy_j: Its energy.
        method: "counter", or "poll" for the mean of the power at both ends.
        end_w: Power at its end.
        note: Why the counter was not used though it should be; empty otherwise.
    """

    start_ns: int
    end_ns: int
    energy_j: float
    method: Literal["counter", "poll"]
    end_w: float
    note: str = ""

    @property
    def length_s(self) -> float:
        """Its length in s."""
        return (self.end_ns - self.start_ns) / NS_PER_S


def interval_between(before: TimedReading, after: TimedReading, step_kwh: float) -> ServerInterval:
    """Return the energy between two readings: by the counter where it is fine enough, else by power.

    Args:
        before: The earlier reading.
        after: The later one.
        step_kwh: Resolution of the counter; 0 if there is none.
    """
    length_s = (after.t_ns - before.t_ns) / NS_PER_S
    by_power_j = (before.reading.power_w + after.reading.power_w) / 2 * length_s
    first, last = before.reading.energy_kwh, after.reading.energy_kwh
    method: Literal["counter", "poll"] = "poll"
    energy_j, note = by_power_j, ""
    if first is not None and last is not None:
        used_j = (last - first) * KWH_J
        if used_j < 0:
            note = f"its energy counter went back from {first:g} to {last:g} kWh"
        elif last - first >= COUNTER_STEPS_MIN * step_kwh:
            is_possible = by_power_j / DISAGREEMENT <= used_j <= by_power_j * DISAGREEMENT
            if is_possible and used_j <= POWER_W_MAX * length_s:
                method, energy_j = "counter", used_j
            else:
                note = (
                    f"its energy counter grew by {last - first:g} kWh in {length_s:.0f} s, which"
                    f" disagrees with its power of {after.reading.power_w:,.0f} W"
                )
    power_w = after.reading.power_w
    return ServerInterval(before.t_ns, after.t_ns, energy_j, method, power_w, note)


def step_of(energy_kwh: float) -> float:
    """Return the last decimal place of a figure: 0.001 of 12.345, 1 of 56438."""
    exponent = exact(energy_kwh).quantize(FINEST_KWH).normalize().as_tuple().exponent
    return float(Decimal(1).scaleb(min(0, int(exponent))))


class Plausibility:
    """Whether the server's readings can be those of the server that has the devices."""

    def __init__(self) -> None:
        self._last: deque[tuple[float, float]] = deque(maxlen=COMPARED)
        self._same_w = self._low_w = self._high_w = 0.0
        self._same_s = 0.0

    def problem(self, interval: ServerInterval, devices_j: float) -> str:
        """Return why the rest beside the devices is not known; empty if it is.

        Args:
            interval: The next interval.
            devices_j: Energy of the devices in it.
        """
        devices_w = devices_j / interval.length_s
        if interval.end_w != self._same_w:
            self._same_w, self._same_s = interval.end_w, 0.0
            self._low_w = self._high_w = devices_w
        self._same_s += interval.length_s
        self._low_w, self._high_w = min(self._low_w, devices_w), max(self._high_w, devices_w)
        change_w = self._high_w - self._low_w
        if self._same_s >= STUCK_S and change_w > max(CHANGE_W, CHANGE_SHARE * self._same_w):
            return (
                f"reports {self._same_w:,.0f} W for {duration_words(self._same_s)} while the"
                f" devices' power changed by {change_w:,.0f} W: the reading is an old one; restart the BMC"
            )
        self._last.append((interval.energy_j, devices_j))
        server_j, all_devices_j = (fsum(part) for part in zip(*self._last, strict=True))
        if server_j <= all_devices_j:
            return (
                f"reports {interval.energy_j / interval.length_s:,.0f} W, less than the"
                f" {devices_w:,.0f} W of the devices: url is of another server, or of a part of this one"
            )
        return ""


@dataclass(frozen=True, slots=True)
class ServerUse:
    """What a server used in an interval, and what its electricity costs.

    Attributes:
        interval: The interval.
        devices_j: Energy of the devices in it; None if unknown.
        problem: Why that, or the rest, is unknown; empty if both are known.
        per_j: Currency per joule, PUE included; None where electricity is not paid apart.
        currency: ISO 4217 code.
    """

    interval: ServerInterval
    devices_j: float | None
    problem: str = ""
    per_j: float | None = None
    currency: str = ""

    @property
    def others_j(self) -> float | None:
        """Energy of the rest: CPUs, memory, fans, power supplies; None if unknown.

        Below zero in an interval in which the power at both ends is less than between them.
        """
        if self.devices_j is None or self.problem:
            return None
        return self.interval.energy_j - self.devices_j

    def cost(self, energy_j: float | None) -> Decimal | None:
        """Return the cost of an energy of the interval, as of the electricity of devices."""
        if energy_j is None or self.per_j is None:
            return None
        return rounded(exact(self.per_j) * exact(energy_j))

    def fields(self) -> dict[str, FieldValue | None]:
        """Return the fields of its row of `server`."""
        energy_j = self.interval.energy_j
        cost, others = self.cost(energy_j), self.cost(self.others_j)
        return {
            "power_w": energy_j / self.interval.length_s,
            "energy_j": energy_j,
            "energy_method": self.interval.method,
            "window_s": self.interval.length_s,
            "devices_energy_j": self.devices_j,
            "others_energy_j": self.others_j,
            "others_window_s": None if self.others_j is None else self.interval.length_s,
            "cost": None if cost is None else float(cost),
            "cost_others": None if others is None else float(others),
        }

    def document(self) -> dict[str, Any]:
        """Return it as JSON, with powers in W and the cost of the rest per hour."""
        length_s, others = self.interval.length_s, self.cost(self.others_j)
        per_h = None if others is None else float(others) / length_s * HOUR_S
        return {
            "power_w": self.interval.energy_j / length_s,
            "devices_power_w": None if self.devices_j is None else self.devices_j / length_s,
            "others_power_w": None if self.others_j is None else self.others_j / length_s,
            "cost_others_per_h": per_h,
            "currency": self.currency or None,
            "problem": self.problem or self.interval.note or None,
        }


class ServerPower:
    """Read the power of the server, and store its energy beside that of the devices.

    Args:
        config: The section [server_power].
        telemetry: The section [telemetry].
        devices: The devices of this host.
        book: Their prices, whose tariff applies to the server.
        ledger: Stores rows.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        missing: Returns why devices of the host are not measured, by name.
        read: Reads the power.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        config: ServerPowerConfig,
        telemetry: TelemetryConfig,
        devices: Sequence[Device],
        book: PriceBook,
        ledger: Ledger,
        clock: Clock,
        *,
        tags: Mapping[str, str],
        missing: Callable[[], Mapping[str, str]],
        read: Callable[[ServerPowerConfig], PowerReading] = read_power,
    ) -> None:
        self.every_s = config.every_s
        self._config, self._read = config, read
        # The energy of a MIG device is that of its board.
        self._devices = [device.name for device in devices if not device.is_slice]
        self._book, self._ledger, self._clock, self._tags = book, ledger, clock, tags
        self._missing = missing
        # The rows of devices of an interval have come at the next read, if they come at all.
        patience_s = 2 * telemetry.aggregate_s + config.every_s
        self._patience_ns = int(patience_s * NS_PER_S)
        longest_s = patience_s + LONGEST_PERIODS * config.every_s
        self._log = DeviceLog(longest_s, longest_gap_s(telemetry.every_s), telemetry.every_s)
        self._on_modules: set[str] = set()
        self._before: TimedReading | None = None
        self._step_kwh = 0.0
        self._waiting: deque[ServerInterval] = deque()
        self._plausibility = Plausibility()
        self._last: ServerUse | None = None
        self._fault: str | None = None
        self._doubt = ""

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Take the readings of devices that arrived together."""
        for reading, _ in readings:
            self._log.record(reading)
            if reading.fields.get("energy_scope") == "module":
                self._on_modules.add(reading.device)

    def poll(self) -> None:
        """Read the power, and store the intervals for which the energy of the devices is known."""
        asked_ns = self._clock.monotonic_ns()
        try:
            reading = self._read(self._config)
        except PowerError as error:
            if self._fault is None:
                logger.warning("server power: %s", error)
            self._fault = str(error)
        else:
            self._fault = None
            self._take(TimedReading((asked_ns + self._clock.monotonic_ns()) // 2, reading))
        self._store()

    def status(self) -> dict[str, Any]:
        """Return the last interval, and why the power cannot be used now; None for what is unknown."""
        last = None if self._last is None or self._fault else self._last.document()
        return {"every_s": self.every_s, "fault": self._fault or self._doubt or None, "last": last}

    def _take(self, after: TimedReading) -> None:
        before, self._before = self._before, after
        total_kwh = after.reading.energy_kwh
        if total_kwh is not None:
            step = step_of(total_kwh)
            self._step_kwh = min(self._step_kwh or step, step)
        if before is not None and 0 < after.t_ns - before.t_ns <= self._longest_ns:
            self._waiting.append(interval_between(before, after, self._step_kwh))

    @property
    def _longest_ns(self) -> int:
        return int(LONGEST_PERIODS * self.every_s * NS_PER_S)

    def _store(self) -> None:
        while self._waiting:
            interval = self._waiting[0]
            is_late = self._clock.monotonic_ns() - interval.end_ns > self._patience_ns
            seen_ns = min((self._log.seen_ns(name) for name in self._devices), default=0)
            if seen_ns < interval.end_ns and not is_late:
                return
            self._waiting.popleft()
            use = self._last = self._used(interval)
            tags = {**self._tags, "currency": use.currency}
            time_ns = row_ns(self._clock, interval.end_ns)
            self._ledger.append([make_point("server", tags, use.fields(), time_ns)])

    def _used(self, interval: ServerInterval) -> ServerUse:
        devices_j, problem = self._devices_j(interval)
        self._doubt = ""
        if devices_j is not None:
            problem = self._doubt = self._plausibility.problem(interval, devices_j)
        # The tariff changes on full minutes, at which the readings are taken.
        paid = self._book.electricity(utc_ns(self._clock, interval.start_ns))
        per_j, currency = paid if paid is not None else (None, "")
        return ServerUse(interval, devices_j, problem, per_j, currency)

    def _devices_j(self, interval: ServerInterval) -> tuple[float | None, str]:
        """Return the energy of all devices in an interval, or None and why it is unknown."""
        if missing := self._missing():
            return None, f"{', '.join(missing)} is not measured"
        if len(self._on_modules) > 1:
            return None, "several devices report the energy of a module, which they may share"
        total_j = 0.0
        for name in self._devices:
            energy = self._log.energy(name, interval.start_ns, interval.end_ns)
            if energy is None:
                return None, f"the energy of {name} is unknown"
            if energy.suspect or energy.method == "modelled":
                return (
                    None,
                    f"the energy of {name} is {'suspect' if energy.suspect else 'modelled'}",
                )
            total_j += energy.energy_j
        return (total_j, "") if self._devices else (None, "no device is measured")
