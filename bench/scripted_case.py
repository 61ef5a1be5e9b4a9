"""A scripted case: a history of a device, and what should be reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from case_device import HARMLESS, SCRIPTS, Physics, ScriptedHost

EVERY_S = 300
J_PER_KWH = 3.6e6
RUNS_PER_H = 3600 // EVERY_S
# Half a run of tolerance: hours are multiples of a run.
TOLERANCE_H = 0.5 / RUNS_PER_H
# First causes whose true shares differ by less are equally right.
EQUAL_SHARES = 0.15


@dataclass(frozen=True)
class ScriptedChange:
    """A scripted change.

    Attributes:
        name: Name of the script.
        hour: Start, in hours after the first run.
        size: Size from 0.5 (small) to 1.
        ramp_h: Duration of its growth; 0 for a step.
        until_hour: End; inf for none.
    """

    name: str
    hour: float
    size: float = 1.0
    ramp_h: float = 0.0
    until_hour: float = math.inf

    def apply(self, host: ScriptedHost, hour: float) -> None:
        """Change a host to its state at an hour."""
        since_h = hour - self.hour + TOLERANCE_H
        if since_h > 0 and hour + TOLERANCE_H < self.until_hour:
            share = min(1.0, since_h / self.ramp_h) if self.ramp_h else 1.0
            SCRIPTS[self.name](host, self.size * share)


@dataclass(frozen=True)
class ScriptedCase:
    """A history and what should be reported.

    Attributes:
        family: Kind of case.
        seed: Seed of its noise.
        hours: Length.
        device: What the device is like.
        changes: What is scripted.
        named: What a script is called where its signals are missing, or where it acts late.
        onset_h: Start of the reported change.
        noise: Standard deviation of the logarithm of time.
        phi: Its AR(1) coefficient.
        outliers: Share of runs that take up to half longer.
        is_noisy: Whether throttling and neighbours vary without any effect.
        daily: Amplitude of a daily rhythm of time.
        wander: Largest fall of the SM clock from run to run, as a share.
        electricity_per_kwh: Price of electricity that the device's price does not include.
        is_server: Whether the probe sends requests with tokens.
        missing: Fields that the device does not report.
    """

    family: str
    seed: int
    hours: float
    device: Physics
    changes: tuple[ScriptedChange, ...] = ()
    named: dict[str, str] = field(default_factory=dict)
    onset_h: float = 0.0
    noise: float = 0.008
    phi: float = 0.0
    outliers: float = 0.0
    is_noisy: bool = False
    daily: float = 0.0
    wander: float = 0.0
    electricity_per_kwh: float = 0.0
    is_server: bool = False
    missing: frozenset[str] = frozenset()

    def host_at(self, hour: float) -> ScriptedHost:
        """Return the state of the host at an hour."""
        host = ScriptedHost()
        for change in self.changes:
            change.apply(host, hour)
        return host

    def shares(self, metric: str = "throughput") -> dict[str, float]:
        """Return each cause's true part of the change at the onset; empty if nothing changed.

        The mean of the differences that a change makes over all orders in which the changes may be
        applied (Shapley), in logarithms.

        Args:
            metric: "cost", "latency", "energy" or "throughput".
        """
        moved = [change for change in self.changes if self._is_at_onset(change)]
        orders = list(permutations(moved))
        parts: dict[str, float] = {}
        for order in orders:
            was = self._log(metric, ())
            for count, change in enumerate(order, 1):
                value = self._log(metric, order[:count])
                name = self.named.get(change.name, change.name)
                parts[name] = parts.get(name, 0.0) + (value - was) / len(orders)
                was = value
        total = sum(parts.values())
        return {name: part / total for name, part in parts.items()} if total else {}

    def first_causes(self) -> set[str]:
        """Return the acceptable first causes; empty if nothing should be reported."""
        shares = self.shares() or self.shares("energy")
        most = max(shares.values(), default=0.0)
        return {name for name, share in shares.items() if share > most - EQUAL_SHARES}

    def _is_at_onset(self, change: ScriptedChange) -> bool:
        is_end = change.until_hour == self.onset_h
        return change.name not in HARMLESS and (change.hour == self.onset_h or is_end)

    def _log(self, metric: str, changes: Sequence[ScriptedChange]) -> float:
        """Return the expected logarithm of a metric under changes at their full size."""
        host = ScriptedHost()
        for change in changes:
            SCRIPTS[change.name](host, change.size)
        time, energy = host.log_time(self.device), host.log_energy(self.device)
        if metric == "energy":
            return energy
        if metric == "latency":
            return time + math.log(host.batch)
        if metric == "cost":
            hardware = ScriptedHost().price_per_h / 3600 * math.exp(time)
            return math.log(hardware + self.electricity_per_kwh / J_PER_KWH * math.exp(energy))
        return time
