"""The two lines about a change: amounts with units, causes with shares, and what to do."""

from dataclasses import replace
from datetime import UTC, datetime

from costprobe.alerts.engine import page_link
from costprobe.core.records import NS_PER_S
from costprobe.drift.causes import Cause, Explanation, Share
from costprobe.drift.message import (
    ChangeFacts,
    FurtherShift,
    MoneyChange,
    PricePart,
    change_message,
)
from fakes.cases import check_all


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
FAN = "To do: check fan and airflow (`nvidia-smi -q -d TEMPERATURE`)"
UNKNOWN = (
    "To do: compare the runs before and after with `costprobe trend`, and look for changes then"
)
HEAD = "cost per inference of ranker on gpu0 is +12.3 % at constant price"
CAPACITY = "a month of this device's capacity if it is fully used"
SINCE = f"since 09:35 UTC, worth $630 {CAPACITY}"

CASES = [
    (
        CHANGE,
        f"{HEAD} (+$0.0049 per 1,000) {SINCE}",
        (
            "95 % of it is time per inference; cause: cooling 82 % (70 to 95 %): temperature 64 → 86 °C;"
            f" neighbour 12 % (5 to 20 %): another process. {FAN}"
        ),
    ),
    (
        replace(CHANGE, price=PricePart(at("2026-11-22T23:00"), -0.011, -900.0)),
        (
            f"{HEAD} (+$0.0049 per 1,000) {SINCE}; the price changed at 2026-11-22 23:00 UTC: its own"
            " part is -$0.011 per 1,000, both together -$0.0061 per 1,000, -$270 a month if this device is"
            " fully used"
        ),
        None,
    ),
    (
        replace(CHANGE, money=None, basis="", what="latency of ranker on gpu0", split=""),
        "latency of ranker on gpu0 is +12.3 % since 09:35 UTC",
        None,
    ),
    (
        replace(CHANGE, since_ns=at("2026-11-21T09:35"), money=None),
        f"{HEAD} since 2026-11-21 09:35 UTC",
        None,
    ),
    (
        replace(CHANGE, money=replace(CHANGE.money, per_month=None)),
        f"{HEAD} (+$0.0049 per 1,000) since 09:35 UTC",
        None,
    ),
    (
        replace(CHANGE, money=replace(CHANGE.money, per_month=-1825.0, of="spend")),
        f"{HEAD} (+$0.0049 per 1,000) since 09:35 UTC, spend -$1,800 a month",
        None,
    ),
    (
        replace(
            CHANGE,
            money=MoneyChange(
                0.02, "million tokens", "USD", 5.0, "electricity", 18_181.8, "tokens"
            ),
        ),
        (
            f"{HEAD} (+$0.02 per million tokens) since 09:35 UTC, electricity +$5 a month at the present"
            " rate of 18,182 tokens/s"
        ),
        None,
    ),
    (
        replace(CHANGE, money=None, further=FurtherShift(0.02, at("2026-11-23T10:00"))),
        f"{HEAD} since 09:35 UTC; +2.0 % more since 10:00 UTC",
        None,
    ),
    (
        replace(CHANGE, money=None, further=FurtherShift(-0.1, at("2026-11-23T10:00"))),
        f"{HEAD} since 09:35 UTC; -9.5 % since 10:00 UTC",
        None,
    ),
    (
        replace(CHANGE, money=None, back_to_ns=at("2026-11-21T09:35")),
        f"{HEAD} since 09:35 UTC; it is back at the level before 2026-11-21 09:35 UTC",
        None,
    ),
    (
        replace(CHANGE, split="", explanation=Explanation("software: driver", (UPDATE,))),
        None,
        (
            "cause: software: driver 550 → 560."
            " To do: roll back the update, or accept the new level if it was intended"
        ),
    ),
    (
        replace(CHANGE, split="", explanation=Explanation("unknown")),
        None,
        f"cause: unknown, no monitored signal explains it. {UNKNOWN}",
    ),
    (
        replace(
            CHANGE,
            split="",
            explanation=Explanation("unknown", (NEIGHBOUR,), Share(0.12, 0.05, 0.2)),
        ),
        None,
        (
            "cause: unknown, 12 % (5 to 20 %) explained; candidates: neighbour 12 % (5 to 20 %): another"
            f" process. {UNKNOWN}"
        ),
    ),
    (
        replace(CHANGE, split="", explanation=Explanation("cooling", (COOLING,) * 6)),
        None,
        "cause: "
        + "; ".join(["cooling 82 % (70 to 95 %): temperature 64 → 86 °C"] * 4)
        + f"; 2 more. {FAN}",
    ),
    (
        replace(CHANGE, split="", is_worse=False, explanation=Explanation("cooling", (COOLING,))),
        None,
        "cause: cooling 82 % (70 to 95 %): temperature 64 → 86 °C. No action is needed",
    ),
    (
        replace(
            CHANGE,
            split="",
            explanation=Explanation(
                "cooling",
                (
                    replace(COOLING, share=Share(1.3, 1.1, 1.5)),
                    replace(
                        UPDATE, share=Share(-0.3, -0.5, -0.1), coincides=True, method="remainder"
                    ),
                ),
            ),
        ),
        None,
        (
            "cause: cooling 130 % (110 to 150 %): temperature 64 → 86 °C; software -30 % (-50 to -10 %):"
            " driver 550 → 560 (coincides, effect not measurable separately)"
            f" (one counteracts, so that others exceed 100 %). {FAN}"
        ),
    ),
    (
        replace(CHANGE, split="", action="add a replica"),
        None,
        (
            "cause: cooling 82 % (70 to 95 %): temperature 64 → 86 °C; neighbour 12 % (5 to 20 %):"
            " another process. To do: add a replica"
        ),
    ),
]


def test_a_change_is_described_in_two_lines():
    def check(change, headline, reason):
        message = change_message(change)
        assert headline in (None, message.headline)
        assert reason in (None, message.reason)
        assert "\n" not in message.headline + message.reason

    check_all(check, CASES)


def test_link_opens_the_page_at_a_time():
    link = page_link("https://gpu-01.example.com/costs/", at("2026-11-23T09:35"))
    assert link == "https://gpu-01.example.com/costs/?at=2026-11-23T09:35:00Z"
