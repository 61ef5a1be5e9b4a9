"""Reads a device's metrics, each by the best way that the driver supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from costprobe.adapters.sensors.child.nvml import Call, Values, Way
from costprobe.adapters.sensors.child.sensor import Report
from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A transient error is reported once it has lasted for this many samples.
REPORT_TRANSIENT_AFTER: Final = 3
# Reasons for a missing value that an operator can remove.
TO_FIX: Final = ("NO_PERMISSION", "CORRUPTED_INFOROM")
# Reasons that may pass while the process runs: a permission is granted, a driver is set up again.
MAY_PASS: Final = frozenset({"NO_PERMISSION"})
RETRY_FIRST_S: Final = 10.0
RETRY_MAX_S: Final = 3600.0
NEVER_NS: Final = 2**63 - 1


class MetricReader:
    """The ways to read each metric that one device has left, and its faults reported so far.

    A way that is not supported is not tried again, unless the reason may pass; a metric with no way
    left is absent.

    Args:
        device: Name of the device.
        report: Called once with each fault that does not end a sample.
        ways: The ways to read each metric, best first.
        clock: CLOCK_MONOTONIC.

    Attributes:
        retry_ns: When all ways should be tried again, in CLOCK_MONOTONIC ns; NEVER_NS for never.
    """

    def __init__(
        self, device: str, report: Report, ways: Mapping[str, Sequence[Way]], clock: Clock
    ) -> None:
        self.retry_ns = NEVER_NS
        self._device = device
        self._report = report
        self._clock = clock
        self._retries = Backoff(RETRY_FIRST_S, RETRY_MAX_S, reset_after_s=RETRY_MAX_S)
        self._failing: dict[str, int] = {}
        self._reported: set[tuple[str, str]] = set()
        self.support(ways)

    def support(self, ways: Mapping[str, Sequence[Way]]) -> None:
        """Try all of these ways from now on."""
        self.retry_ns = NEVER_NS
        self._ways = {metric: list(supported) for metric, supported in ways.items()}

    def has_any(self) -> bool:
        """Whether the device has a way left to read anything."""
        return any(self._ways.values())

    def best(self, metric: str) -> Way | None:
        """The way by which a metric is read; None where it is absent."""
        ways = self._ways[metric]
        return ways[0] if ways else None

    def read(self, metric: str, call: Call, handle: object) -> Values:
        """Read one metric; empty where it is absent, now or permanently.

        Raises:
            SensorFault: The library or the whole device is concerned.
        """
        ways = self._ways[metric]
        while ways:
            try:
                values = ways[0](call, handle)
            except SensorFault as fault:
                if self.is_absent(metric, fault):
                    ways.pop(0)
                    continue
                return {}
            if self._failing:
                self.works(metric)
            return values
        return {}

    def is_absent(self, metric: str, fault: SensorFault) -> bool:
        """Whether a fault means that a metric is absent; otherwise it passes.

        Raises:
            SensorFault: The fault, if the library or the whole device is concerned.
        """
        if fault.reaction is Reaction.ABSENT:
            if fault.detail and fault.code in TO_FIX:
                self._report_once(metric, fault)
            self.retry_later(fault)
            return True
        if fault.reaction is not Reaction.TRANSIENT:
            raise fault
        self._failing[metric] = self._failing.get(metric, 0) + 1
        if self._failing[metric] == REPORT_TRANSIENT_AFTER:
            self._report_once(metric, fault)
        return False

    def retry_later(self, fault: SensorFault) -> None:
        """Set when all ways are tried again, if the reason of this fault may pass."""
        if fault.code in MAY_PASS and self.retry_ns == NEVER_NS:
            now_ns = self._clock.monotonic_ns()
            self.retry_ns = now_ns + int(self._retries.next_s(now_ns) * NS_PER_S)

    def works(self, metric: str) -> None:
        """Note that a metric was read."""
        self._failing.pop(metric, None)

    def _report_once(self, metric: str, fault: SensorFault) -> None:
        if (metric, fault.code) not in self._reported:
            self._reported.add((metric, fault.code))
            self._report(self._device, fault)
