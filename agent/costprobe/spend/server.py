"""What the server used beside its devices in a span, apart from the cost of the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final

from costprobe.adapters.databases.question import Question
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S
from costprobe.spend.query import store_sums

if TYPE_CHECKING:
    from costprobe.adapters.store.read import StoreReader

_FIELDS: Final = ("others_energy_j", "others_window_s", "cost_others")


@dataclass(frozen=True, slots=True)
class ServerOthers:
    """What the server used beside its devices.

    Attributes:
        energy_j: Energy of the time in which it is known.
        coverage: Share of the span in which it is known.
        costs: Its electricity by currency; empty where that is not paid separately.
    """

    energy_j: float
    coverage: float
    costs: Mapping[str, float]


def server_others(reader: StoreReader, span: TimeSpan) -> ServerOthers | None:
    """Return what the server used beside its devices in a span; None if that is never known.

    Raises:
        StoreError: The store cannot be read.
    """
    asked = (Question("server", name, "sum", by=("currency",)) for name in _FIELDS)
    energies, lengths, costs = store_sums(reader, span, *asked)
    if not energies:
        return None
    length_s = (span.end_ns - span.start_ns) / NS_PER_S
    coverage = min(1.0, fsum(lengths.values()) / length_s) if length_s else 0.0
    by_currency = {currency: cost for (currency,), cost in costs.items()}
    return ServerOthers(fsum(energies.values()), coverage, by_currency)
