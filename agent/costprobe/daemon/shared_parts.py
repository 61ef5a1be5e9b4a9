"""The parts of the daemon that are kept when the configuration or the devices change."""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.adapters.sensors.supervisor.supervisor import SensorSupervisor
from costprobe.adapters.storage.writer import Store
from costprobe.app.accounting.ledger import StoreLedger
from costprobe.app.measuring.listeners import Listeners
from costprobe.app.watching.incident_store import IncidentStore
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockMonitor


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts that are kept across reloads.

    Attributes:
        store: The store that this process writes; the outbox of the sinks.
        ledger: Rows and documents, queued in memory while the store rejects writes.
        incidents: Incidents, likewise.
        sensor: The sensor child's supervisor.
        clock: The host's clocks.
        steps: Detects steps of the wall clock.
        listeners: Callbacks for probe runs.
        detector: Detects the cloud instance.
    """

    store: Store
    ledger: StoreLedger
    incidents: IncidentStore
    sensor: SensorSupervisor
    clock: Clock
    steps: ClockMonitor
    listeners: Listeners
    detector: InstanceDetector
