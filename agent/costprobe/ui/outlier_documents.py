"""Outliers of a fleet as JSON, with the same keys in commands and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from costprobe.fleet.peers import (
    FALSE_SHARE,
    LEAST_EFFECT,
    Excess,
    ExcessCost,
    FleetOutliers,
    Outlier,
)


def outliers_document(found: FleetOutliers, within: Sequence[str]) -> dict[str, Any]:
    """Return the outliers as JSON."""
    return {
        "within": list(within),
        "tested": found.tested,
        "untested": found.untested,
        "updated": found.updated,
        "false_share": FALSE_SHARE,
        "least_excess_pct": LEAST_EFFECT * 100,
        "outliers": [outlier_document(one) for one in found.outliers],
        "levels": [
            {
                "peers": list(peers),
                "label": within[level.label],
                "value": level.value,
                "time_excess_pct": math.expm1(level.log_excess) * 100,
                "hosts": level.hosts,
            }
            for peers, level in found.levels
        ],
    }


def outlier_document(one: Outlier) -> dict[str, Any]:
    """Return an outlier as JSON."""
    return {
        "host": one.host,
        "device": one.device or None,
        "peers": list(one.peers),
        "peer_count": one.peer_count,
        "probe_runs": one.runs,
        **_ends("time", one.time),
        **_ends("energy", one.energy),
        "cause": one.explanation.name,
        "causes": [
            {
                "name": cause.name,
                "text": cause.text,
                "cause_share": None if cause.share is None else cause.share.mean,
            }
            for cause in one.explanation.causes
        ],
        **monthly_document(one.cost),
    }


def monthly_document(cost: ExcessCost | None) -> dict[str, float | str | None]:
    """Return what an excess or a change costs a month as JSON."""
    return {
        "cost_per_month": None if cost is None else cost.mean,
        "cost_low_per_month": None if cost is None else cost.low,
        "cost_high_per_month": None if cost is None else cost.high,
        "currency": None if cost is None else cost.currency,
    }


def _ends(metric: str, excess: Excess | None) -> dict[str, float | None]:
    return {
        f"{metric}_excess_pct": None if excess is None else excess.mean * 100,
        f"{metric}_excess_low_pct": None if excess is None else excess.low * 100,
        f"{metric}_excess_high_pct": None if excess is None else excess.high * 100,
    }
