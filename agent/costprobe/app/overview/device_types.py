"""Unit costs of a model on devices of the same type, and which device deviates from the others."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from costprobe.app.overview.unit_records import UnitCost, UnitGroup
from costprobe.core.device_names import natural

# Modified z-score above which a value is an outlier (Iglewicz and Hoaglin 1993), and the smallest deviation
# that matters: devices of one type differ by 1 to 2 % from their manufacturing.
OUTLIER_SCORE: Final = 3.5
_NORMAL_MAD: Final = 0.6745
OUTLIER_SHARE: Final = 0.03


def by_device_type(units: Iterable[UnitCost]) -> list[UnitGroup]:
    """Group a model's costs on devices of the same type, in the same currency and execution mode."""
    groups: dict[tuple[str, ...], list[UnitCost]] = defaultdict(list)
    for unit in units:
        tags = unit.tags
        ways = (
            tags.get(name, "")
            for name in (
                "currency",
                "batch",
                "concurrency",
                "cold",
                "compile",
                "cuda_graph",
                "weights",
            )
        )
        groups[
            tags.get("probe", ""), unit.device_model or tags.get("device", ""), unit.unit, *ways
        ].append(unit)
    return [
        _group(members) for _, members in sorted(groups.items(), key=lambda item: natural(*item[0]))
    ]


def _group(members: list[UnitCost]) -> UnitGroup:
    members.sort(key=lambda unit: natural(unit.tags.get("device", "")))
    middle = statistics.median_low(unit.cost for unit in members)
    typical = next(unit for unit in members if unit.cost == middle)
    deviations = [abs(unit.cost - middle) for unit in members]
    limit = max(OUTLIER_SHARE * middle, OUTLIER_SCORE / _NORMAL_MAD * statistics.median(deviations))
    return UnitGroup(
        typical=typical,
        members=tuple(members),
        spread=(max(u.cost for u in members) - min(u.cost for u in members)) / middle
        if middle
        else 0.0,
        outliers=tuple(
            unit.tags.get("device", "")
            for unit, deviation in zip(members, deviations, strict=True)
            if len(members) > 1 and deviation > limit
        ),
        moved=max(members, key=lambda unit: abs(unit.change_24h_pct or 0.0)),
    )
