"""Hourly aggregation of each numeric field, the same as in the local store."""

from __future__ import annotations

from typing import Final, NamedTuple

from costprobe.adapters.store.hours import Aggregation, kind_of
from costprobe.core.schema import SCHEMA, SERVING_RATIOS


class HourlySeries(NamedTuple):
    """Series that are aggregated alike.

    Attributes:
        name: Unique name.
        measurement: Name of the series family.
        basis: Tag `basis` of the series; empty for all.
    """

    name: str
    measurement: str
    basis: str = ""

    @property
    def fields(self) -> dict[Aggregation, list[str]]:
        """The numeric fields by their aggregation: sum, mean, median, max, last.

        Ratios of production are left out: they are divided from the sums of an hour.
        """
        fields: dict[Aggregation, list[str]] = {}
        for name, kind in SCHEMA[self.measurement].fields.items():
            if kind in (int, float) and not (self.basis == "serving" and name in SERVING_RATIOS):
                how = kind_of(self.measurement, name, kind(0))
                fields.setdefault(how, []).append(name)
        return fields


# Series that change rarely are not aggregated.
ROLLED: Final = (
    HourlySeries("device", "device"),
    HourlySeries("probe", "probe"),
    HourlySeries("software", "software"),
    HourlySeries("cost", "cost", "probe"),
    HourlySeries("cost_serving", "cost", "serving"),
    HourlySeries("serving", "serving"),
    HourlySeries("allocation", "allocation"),
    HourlySeries("tenant", "tenant"),
    HourlySeries("agent", "agent"),
)
