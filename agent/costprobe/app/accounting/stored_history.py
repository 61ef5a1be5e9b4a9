"""Earlier runs in the store: for the schedule at a start, and for rolling costs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S
from costprobe.core.row_values import number
from costprobe.domain.costing.probe.rolling import RollingSample


class StoredHistory:
    """Reads earlier runs; each question opens the store for itself.

    Args:
        store_path: The store.
        clock: UTC.
    """

    def __init__(self, store_path: Path, clock: Clock) -> None:
        self._store_path = store_path
        self._clock = clock

    def ran_lately(self, device: str, probe: str, every_s: float) -> bool:
        """Return whether the last run is more recent than a period, so that a start runs no other.

        Raises:
            StoreError: The store cannot be read.
        """
        since_ns = self._clock.time_ns() - int(every_s * NS_PER_S)
        with closing(StoreReader.open(self._store_path)) as reader:
            found = reader.points(
                "probe", since_ns, END_OF_TIME_NS, {"device": device, "probe": probe}
            )
            return any(found)

    def costs(
        self, device: str, probe: str, currency: str, since_ns: int
    ) -> Iterable[RollingSample]:
        """Return the costs per inference of a probe since UTC ns, in order of time.

        Raises:
            StoreError: The store cannot be read.
        """
        tags = {"device": device, "probe": probe, "basis": "probe", "currency": currency}
        with closing(StoreReader.open(self._store_path)) as reader:
            return sorted(
                RollingSample(row.time_ns, value, row.fields.get("contended") is True)
                for row in reader.points("cost", since_ns, END_OF_TIME_NS, tags)
                if (value := number(row, "cost_per_inference")) is not None
            )
