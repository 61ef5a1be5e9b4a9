"""What the page places: texts, tables, tiles and bars as JSON, formatted here and nowhere else.

A content is a text, a list of contents, or an object with `text` and, where needed, `kind` (how it looks),
`value` (the exact number, by which a column is sorted), `said` (for a screen reader), `href`, `bar` or `spark`.
Times in a text are UTC, "2026-03-01 09:40 UTC"; the page writes them in its zone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from costprobe.core.money import cents, money
from costprobe.core.periods import HOUR_NS
from costprobe.ui.amounts import UNKNOWN, change

Content = str | Mapping[str, Any] | Sequence[Any]
# Smaller changes are noise, and the least that is shown.
CALM_PCT: Final = 1.0
LEAST_PCT: Final = 0.05
# Half the height of a small line is at least this share of its values.
CALM_SPARK: Final = 0.02


def part(text: Content, kind: str = "", **more: object) -> Content:
    """Return a text with its kind."""
    return {"text": text, **({"kind": kind} if kind else {}), **more} if kind or more else text


def price(amount: float | None, currency: str, kind: str = "", per: str = "") -> Content:
    """Return an amount of money with its exact value; a dash if unknown."""
    return UNKNOWN if amount is None else part(money(amount, currency) + per, kind, value=amount)


def planned(amount: float, currency: str) -> Content:
    """Return an amount that somebody configured: to the cent, as it was written."""
    return part(cents(amount, currency).removesuffix(".00"), value=amount)


def moved(pct: float | None) -> Content:
    """Return a change in percent of a cost, of which more is worse."""
    if pct is None or abs(pct) < LEAST_PCT:
        return part(UNKNOWN if pct is None else "0 %", "muted")
    kind = "muted" if abs(pct) < CALM_PCT else "bad" if pct > 0 else "good"
    sign, word = ("▲", "up") if pct > 0 else ("▼", "down")
    return part(f"{sign} {change(pct)}", kind, value=pct, said=f"{word} {change(pct)}")


def spark(points: Sequence[tuple[int, float]], span_ns: tuple[int, int]) -> Content:
    """Return the points of a small line, 100 wide and 20 high: medians of each hour of a span."""
    start_ns, end_ns = span_ns
    steps: dict[int, list[float]] = {}
    for time_ns, value in points:
        if time_ns >= start_ns:
            steps.setdefault((time_ns - start_ns) // HOUR_NS, []).append(value)
    values = {step: statistics.median(of) for step, of in steps.items()}
    least, most = min(values.values(), default=0.0), max(values.values(), default=0.0)
    # A calm line is drawn in the middle, not stretched over the height.
    middle, half = (least + most) / 2, max((most - least) / 2, CALM_SPARK * abs(most)) or 1.0
    across = (end_ns - start_ns) / HOUR_NS
    drawn = [
        f"{s / across * 100:.1f},{10 - (v - middle) / half * 9:.1f}" for s, v in values.items()
    ]
    return part("", spark=" ".join(drawn))


def tile(name: str, big: Content, *notes: Content | None, bar: object = None) -> dict[str, Any]:
    """Return a figure under its name, with notes below."""
    return {"name": name, "big": big, "bar": bar, "notes": [note for note in notes if note]}


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    total: Sequence[Any] = (),
    none: str = "",
) -> dict[str, Any]:
    """Return a table without the columns that no row has.

    Args:
        caption: What the figures are.
        heads: Heads; "#" begins that of numbers, "~" ends that of what a narrow screen leaves out.
        rows: The contents of each row.
        total: Those of the last row; empty for none.
        none: What is said if there is no row.
    """
    rows = [list(row) for row in rows]
    used = [n for n in range(len(heads)) if not n or any(r[n] not in (UNKNOWN, "") for r in rows)]
    return {
        "caption": caption,
        "heads": [heads[n] for n in used],
        "rows": [[row[n] for n in used] for row in rows],
        "total": [total[n] for n in used] if total else [],
        "none": none,
    }
