"""Events of changes of production, with their decomposition and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from costprobe.core.records import NS_PER_S, Event, Severity
from costprobe.domain.alerting.change_message import (
    ChangeFacts,
    MoneyChange,
    change_message,
    money_a_month,
)
from costprobe.domain.alerting.production_text import UNCHANGED, explanation, money_of
from costprobe.domain.costing.comparison.production_change import Driver, Part, ProductionChange
from costprobe.domain.detection.causes import UNKNOWN, Cause, Explanation, action_of
from costprobe.domain.detection.production_detector import ProductionFinding
from costprobe.domain.detection.settings import ServingMetric

WORDS: Final[Mapping[ServingMetric, str]] = MappingProxyType(
    {
        "serving_time": "device time per {}",
        "serving_energy": "energy per {}",
        "demand": "held device time per {}",
        "mix": "work per request",
    }
)
CAUSES: Final[Mapping[ServingMetric, Driver]] = MappingProxyType(
    {
        "serving_time": "efficiency",
        "serving_energy": "efficiency",
        "demand": "demand",
        "mix": "mix",
    }
)
# What a change of each series is in money: parts of the cost, each of one series only.
_PARTS: Final[Mapping[ServingMetric, tuple[Part, ...]]] = MappingProxyType(
    {
        "serving_time": ("speed",),
        "serving_energy": ("busy power", "idle power", "mean power"),
        "demand": ("idle time", "load"),
        "mix": ("models", "input and output", "cached input", "request length"),
    }
)
_SAME_AS_PROBE: Final = 0.5


def production_event(
    key: tuple[str, str],
    finding: ProductionFinding,
    log_shift: float,
    change: ProductionChange | None,
    explained: Explanation,
) -> Event:
    """Return the event of a change.

    Args:
        key: Service and served model; "" for the whole service.
        finding: The change.
        log_shift: Its distance from the last settled level, in log units.
        change: Decomposition of the cost between two periods; None where one is not covered.
        explained: Its causes; "unknown" without one that explains half of it.
    """
    driver = CAUSES[finding.metric]
    name = driver if explained.name == UNKNOWN else explained.name
    split = (
        ""
        if change is None
        else f"cost per {change.unit} {_percent(change.log_ratio)}: {explanation(change)}"
    )
    facts = ChangeFacts(
        what=f"{_words(finding)} of {_name(key)}",
        change_pct=math.expm1(finding.change) * 100,
        since_ns=round(finding.since_s * NS_PER_S),
        now_ns=round(finding.time_s * NS_PER_S),
        is_worse=finding.change > 0,
        explanation=Explanation(driver, (Cause(driver, ""), *explained.causes)),
        money=_money(finding, change),
        split=split,
        action=_advice(finding, change) if name == driver else action_of(name),
    )
    message = change_message(facts)
    return Event(
        kind="drift",
        severity=_severity(finding),
        title=message.headline,
        time_ns=facts.now_ns,
        detail=message.reason,
        subject=_subject(key),
        cause=name,
        metric=finding.metric,
        change_pct=facts.change_pct,
        level_pct=math.expm1(log_shift) * 100,
        since_ns=facts.since_ns,
        **money_a_month(facts.money),
    )


def reversal_event(key: tuple[str, str], finding: ProductionFinding) -> Event:
    """Return the event of a change that reverted; what is left of it belongs to the new level.

    Args:
        key: Service and served model; "" for the whole service.
        finding: The change back.
    """
    return Event(
        kind="drift",
        severity="info",
        title=f"{_words(finding)} of {_name(key)} reverted",
        time_ns=round(finding.time_s * NS_PER_S),
        subject=_subject(key),
        metric=finding.metric,
        level_pct=0.0,
    )


def _words(finding: ProductionFinding) -> str:
    return WORDS[finding.metric].format(finding.unit)


def _name(key: tuple[str, str]) -> str:
    service, model = key
    return f"{model} of {service}" if model else service


def _subject(key: tuple[str, str]) -> dict[str, str]:
    service, model = key
    return {"service": service, **({"served_model": model} if model else {})}


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio) * 100:+z.1f} %"


def _severity(finding: ProductionFinding) -> Severity:
    """Return warning for a lower efficiency and for a collapse of demand."""
    is_efficiency = CAUSES[finding.metric] == "efficiency"
    return "warning" if finding.change > 0 and (is_efficiency or finding.is_collapse) else "info"


def _money(finding: ProductionFinding, change: ProductionChange | None) -> MoneyChange | None:
    """Return a change in money; None if its parts of the cost moved in the other direction.

    A lower speed takes energy at the same power, so that the energy may rise and its own part fall.
    """
    if change is None:
        return None
    paid = money_of(change, _PARTS[finding.metric])
    return paid if paid.amount * finding.change > 0 else None


def _advice(finding: ProductionFinding, change: ProductionChange | None) -> str:
    if finding.metric == "demand":
        return "check whether requests arrive as intended, or hold fewer devices"
    if finding.metric == "mix":
        return "check which clients send longer requests, and the cache of prompts"
    control = None if change is None else change.control
    if control is not None and math.log(control) > max(UNCHANGED, _SAME_AS_PROBE * finding.change):
        return "look for the cause at the probe of the device, which is slower too"
    if control is not None:
        return "compare the server's version and settings; the device itself is as before"
    return "compare the server's version and settings, and the clocks of its devices"
