"""What the services of a host share with the rest of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costprobe.adapters.store.ledger import Ledger
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.use import ProbeRuns
from costprobe.pricing.electricity import NO_CARBON, CarbonBook

if TYPE_CHECKING:  # a daemon without services does without the memory
    from costprobe.serving.device_costs import Claimant


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
