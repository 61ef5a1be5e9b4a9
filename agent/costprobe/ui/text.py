"""Display formats of times and energies, the same in every command, page and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from costprobe.core.money import money
from costprobe.core.units import percent, significant


def local(time_ns: int) -> str:
    """Format UTC ns as local time of this host, with the name of its zone."""
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def ago(duration_s: float) -> str:
    """Return a rounded duration for display: "12 s", "3 min", "2.5 h", "4 d".

    After the wall clock was set back a time in the future is 0 s ago.
    """
    duration_s = max(0.0, duration_s)
    for limit_s, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f} {unit}"
    return f"{duration_s / 86_400:.1f} d"


def joules(value: float) -> str:
    """Joules with four significant digits: "0.3251 J", "45,000 J"."""
    return f"{significant(value)} J"


# How tokens are counted where the answers of a server have no `usage`, as llama.cpp's may.
CHUNKS = "chunks of the stream counted as tokens"


# Behind the price of cached tokens whose weight no calibration has measured.
UNMEASURED = " (no weight measured)"


class KindPrice(NamedTuple):
    """The price of a million tokens of one kind: "fresh tokens in", "cached tokens in", "tokens out".

    Attributes:
        amount: Currency, or another price.
        which: "fresh ", "cached " or nothing.
        way: "in" or "out".
    """

    amount: float
    which: str
    way: str


def kind_prices(price_of: Callable[[str], float | None]) -> Iterator[KindPrice]:
    """Yield the known prices of tokens; that of input in two where some of it was cached.

    Args:
        price_of: Price by kind: "in", "fresh", "cached" or "out"; None if there is none.
    """
    cached = price_of("cached")
    inputs = [("in", "", "in")]
    if cached is not None:
        inputs = [
            ("fresh", "fresh ", "in"),
            ("cached", "cached ", "in" if cached else f"in{UNMEASURED}"),
        ]
    for kind, which, way in (*inputs, ("out", "", "out")):
        amount = price_of(kind)
        if amount is not None:
            yield KindPrice(amount, which, way)


def cache_words(share: float | None, saved: float | None, currency: str) -> str:
    """Return what a cache answered and saved: "40 % of tokens in cached, saved $0.05"; empty if nothing.

    Args:
        share: Share of the prompt tokens; None if they are not counted.
        saved: Currency; None if unknown.
        currency: ISO 4217 code.
    """
    if not share:
        return ""
    words = f"{percent(share)} of tokens in cached"
    return words if saved is None else f"{words}, saved {money(saved, currency)}"
