"""The inputs of the services' cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costprobe.app.accounting.device_charges import DeviceCharges
from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.domain.pricing.carbon import NO_CARBON, CarbonBook

if TYPE_CHECKING:  # loaded with a service only
    from costprobe.app.accounting.claimant import Claimant


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The inputs of the services' cost.

    Attributes:
        charges: What the devices cost, by their readings.
        runs: Probe runs.
        clock: The host's clocks.
        tags: Host and static labels.
        ledger: Stores rows, and the last window of each service.
        on_event: Stores events.
        store_path: The store, from which rolling costs are restored.
        proc: Root of the proc file system.
        carbon: Carbon intensities.
        on_containers: Receives the containers of this node that hold devices.
    """

    charges: DeviceCharges
    runs: ProbeRuns
    clock: Clock
    tags: Mapping[str, str]
    ledger: Ledger
    on_event: Callable[[Event], None]
    store_path: Path
    proc: Path = Path("/proc")
    carbon: CarbonBook = NO_CARBON
    on_containers: Callable[[Sequence[Claimant]], None] = lambda _: None
