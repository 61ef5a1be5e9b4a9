"""The two lines about a change: amounts with units, causes with shares, and what to do."""

from dataclasses import replace
from datetime import UTC, datetime

from costprobe.core.records import NS_PER_S
from costprobe.drift.causes import Cause, Explanation, Share
from costprobe.drift.message import (
    ChangeFacts,
    FurtherShift,
    MoneyChange,
    PricePart,
    change_message,
)
from record_files import check


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS_PER_S


COOLING = Cause("cooling", "temperature 64 → 86 °C", share=Share(0.823, 0.7, 0.951))
NEIGHBOUR = Cause("neighbour", "another process", share=Share(0.12, 0.05, 0.2))
TRACE = Cause("clock", "SM clock", share=Share(0.004, 0.0, 0.02))
UPDATE = Cause("software: driver", "driver 550 → 560")
CHANGE = ChangeFacts(
    what="cost per inference of ranker on gpu0",
    change_pct=12.34,
    since_ns=at("2026-11-23T09:35"),
    now_ns=at("2026-11-23T10:10"),
    is_worse=True,
    explanation=Explanation("cooling", (COOLING, NEIGHBOUR, TRACE)),
    basis="at constant price",
    money=MoneyChange(0.0049, "1,000", "USD", 625.7),
    split="95 % of it is time per inference",
)
LARGER = replace(COOLING, share=Share(1.3, 1.1, 1.5))
SMALLER = replace(UPDATE, share=Share(-0.3, -0.5, -0.1), coincides=True, method="remainder")
ELECTRICITY = MoneyChange(0.02, "million tokens", "USD", 5.0, "electricity", 18_181.8, "tokens")


def explained(name, *causes, share=None):
    return {"split": "", "explanation": Explanation(name, causes, share)}


CASES = {
    "whole": {},
    "price changed": {"price": PricePart(at("2026-11-22T23:00"), -0.011, -900.0)},
    "latency": {"money": None, "basis": "", "what": "latency of ranker on gpu0", "split": ""},
    "two days before": {"since_ns": at("2026-11-21T09:35"), "money": None},
    "no month": {"money": replace(CHANGE.money, per_month=None)},
    "spend": {"money": replace(CHANGE.money, per_month=-1825.0, of="spend")},
    "electricity": {"money": ELECTRICITY},
    "grown": {"money": None, "further": FurtherShift(0.02, at("2026-11-23T10:00"))},
    "shrunk": {"money": None, "further": FurtherShift(-0.1, at("2026-11-23T10:00"))},
    "back": {"money": None, "back_to_ns": at("2026-11-21T09:35")},
    "update": explained("software: driver", UPDATE),
    "no signal": explained("unknown"),
    "candidates": explained("unknown", NEIGHBOUR, share=Share(0.12, 0.05, 0.2)),
    "six causes": explained("cooling", *[COOLING] * 6),
    "better": {**explained("cooling", COOLING), "is_worse": False},
    "counteracting": explained("cooling", LARGER, SMALLER),
    "own action": {"split": "", "action": "add a replica"},
}


def test_a_change_is_described_in_two_lines():
    lines = []
    for name, changed in CASES.items():
        message = change_message(replace(CHANGE, **changed))
        assert "\n" not in message.headline + message.reason
        lines += [f"{name}:", f"  {message.headline}", f"  {message.reason}"]
    check("change_messages.txt", "\n".join([*lines, ""]))
