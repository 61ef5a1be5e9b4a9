"""How each numeric field is aggregated to an hour: as in the local store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from costprobe.adapters.storage.rollup.aggregation import Kind, kind_of
from costprobe.core.schema import SCHEMA

# Series that change rarely are kept as they are.
ROLLED: Final = ("device", "probe", "cost", "serving", "allocation", "agent")
# Each row holds the grams of its own interval.
_KINDS: Final[Mapping[tuple[str, str], Kind]] = {("device", "carbon_g"): "sum"}


def rolled_fields(measurement: str) -> dict[Kind, list[str]]:
    """The numeric fields of a series by their aggregation: sum, mean, median, max, last."""
    found: dict[Kind, list[str]] = {}
    for name, kind in SCHEMA[measurement].fields.items():
        if kind in (int, float):
            how = _KINDS.get((measurement, name)) or kind_of(measurement, name, kind(0))
            found.setdefault(how, []).append(name)
    return found
