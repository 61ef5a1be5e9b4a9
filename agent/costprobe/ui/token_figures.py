"""Display format of the cost and energy of tokens, the same in every command and report."""

from __future__ import annotations

from costprobe.core.money import money
from costprobe.ui.text import CHUNKS, joules
from costprobe.unit_costs.compare import Candidate


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
