"""What the services of a host share with the rest of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from costprobe.adapters.store.ledger import Ledger, restored
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.records import Event
from costprobe.core.schema import make_point
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


# What of the devices' cost is in no allocation, and is not to be; None while nothing is allocated.
ALLOCATING_STATE: Final = "allocating"
# Rounding of the sums.
_LEAST: Final = Decimal("1e-12")
_Rest = dict[tuple[str, str], Decimal]


def begin_allocation(ledger: Ledger, store_path: Path) -> None:
    """Record that the cost of devices is allocated from now on, until `allocate_rest`."""
    if ledger.state(ALLOCATING_STATE) is None:
        ledger.put_state(ALLOCATING_STATE, _document(_unallocated(store_path)))


def allocate_rest(ledger: Ledger, store_path: Path, tags: Mapping[str, str], now_ns: int) -> None:
    """End what `begin_allocation` began: what was not allocated, as by a process that was killed, becomes `unallocated`.

    The counters of devices and of allocations are committed with their rows: their difference is
    what the last window would have allocated.

    Args:
        ledger: Stores the rows of `allocation`, at the time of the devices' newest rows.
        store_path: The store.
        tags: Host and static labels.
        now_ns: UTC in ns.
    """
    if ledger.state(ALLOCATING_STATE) is None:
        return
    known = restored(ledger, ALLOCATING_STATE, _rest_of)
    with closing(StoreReader.open(store_path)) as reader:
        newest = reader.last("device", now_ns)
    points = []
    for (device, currency), rest in _unallocated(store_path).items():
        left = Decimal(0) if known is None else rest - known.get((device, currency), Decimal(0))
        if left > _LEAST * (abs(rest) + 1):
            ends_ns = [row.time_ns for row in newest if row.tags.get("device") == device]
            own = {"device": device, "part": "unallocated", "currency": currency}
            time_ns = max(ends_ns, default=now_ns)
            points.append(make_point("allocation", {**tags, **own}, {"cost": float(left)}, time_ns))
    ledger.append(points, {ALLOCATING_STATE: None})


def _unallocated(store_path: Path) -> _Rest:
    """Return the cost of each device, in each currency, less what was allocated of it."""
    rest: _Rest = {}
    signs = {"cost_total": 1, "allocated_cost_total": -1}
    with closing(StoreReader.open(store_path)) as reader:
        for sample in reader.totals():
            if sample.name in signs:
                key = (sample.labels.get("device", ""), sample.labels.get("currency", ""))
                rest[key] = rest.get(key, Decimal(0)) + signs[sample.name] * sample.value
    return rest


def _document(rest: _Rest) -> list[list[str]]:
    return [[device, currency, str(amount)] for (device, currency), amount in rest.items()]


def _rest_of(document: Iterable[Sequence[str]]) -> _Rest:
    return {(device, currency): Decimal(amount) for device, currency, amount in document}
