"""Display format of the cost and energy of tokens, the same in every command and report."""

from __future__ import annotations

from costprobe.core.money import money
from costprobe.ui.text import CHUNKS, cache_words, joules, kind_prices
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
                f"{money(price.amount, candidate.currency)} {price.which}{price.way}"
                for price in kind_prices(candidate.token_price)
            ],
            [
                f"{joules(summary.value)} {words}"
                for words, summary in (
                    ("in", candidate.energy_per_million_tokens_in_j),
                    ("out", candidate.energy_per_million_tokens_out_j),
                )
                if summary is not None
            ],
            [
                text
                for text in [
                    cache_words(
                        candidate.cached_share, candidate.cost_cache_saved, candidate.currency
                    )
                ]
                if text
            ],
        )
    ]
