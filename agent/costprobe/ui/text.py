"""Display formats of times and energies, the same in every command, page and report."""

from __future__ import annotations

from datetime import datetime

from costprobe.core.money_text import money
from costprobe.domain.costing.comparison.compare import Candidate


def local(time_ns: int) -> str:
    """Format UTC ns as local time of this host, with the name of its zone."""
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def ago(duration_s: float) -> str:
    """Return a rounded duration for display: "12 s", "3 min", "2.5 h", "4 d"."""
    for limit_s, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f} {unit}"
    return f"{duration_s / 86_400:.1f} d"


def joules(value: float) -> str:
    """Joules with four significant digits: "0.3251 J", "45,000 J"."""
    text = f"{value:,.4g}"
    return f"{value:,.0f} J" if "e+" in text else f"{text} J"


# How tokens are counted where the answers of a server have no `usage`, as llama.cpp's may.
CHUNKS = "chunks of the stream counted as tokens"


def per_million_tokens(candidate: Candidate) -> str:
    """Cost and energy of a million tokens of each kind; empty if neither is known."""
    words = "; ".join(part for part in _per_million(candidate) if part)
    return f"{words} ({CHUNKS})" if words and candidate.counts_chunks else words


def _per_million(candidate: Candidate) -> list[str]:
    return [
        ", ".join(texts)
        for texts in (
            [
                f"{money(summary.value, candidate.currency)} {words}"
                for words, summary in (
                    ("in", candidate.cost_per_million_tokens_in),
                    ("out", candidate.cost_per_million_tokens_out),
                )
                if summary is not None
            ],
            [
                f"{joules(summary.value)} {words}"
                for words, summary in (
                    ("in", candidate.energy_per_million_tokens_in_j),
                    ("out", candidate.energy_per_million_tokens_out_j),
                )
                if summary is not None
            ],
        )
    ]
