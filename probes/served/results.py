"""The figures of a load: latencies, times to and between tokens, and counts of tokens."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from probes.served.outcome import Reply
from probes.stats import summary

# How many tokens a request generated; None if it is not known.
TokensOut = Callable[[Reply], "int | None"]


def tokens_counter(replies: Sequence[Reply]) -> tuple[str | None, TokensOut]:
    """How generated tokens are counted, for all requests in the same way.

    Args:
        replies: All answered requests.

    Returns:
        "usage" if the server counted in every answer; else "chunks", where a piece of the stream
        stands for a token; None if there are no streams. And what counts a request's.
    """
    if any(x.chunks is None for x in replies):
        return None, lambda _: None
    if all(x.tokens_out is not None for x in replies):
        return "usage", lambda x: x.tokens_out
    return "chunks", lambda x: x.chunks


def figures(replies: Sequence[Reply], tokens_out: TokensOut) -> dict[str, Any]:
    """Summaries in ms, and mean counts of tokens; None where there are no values.

    Args:
        replies: Timed requests, at least one.
        tokens_out: Tokens that a request generated.
    """
    first = [(x.first_token_ns - x.start_ns) / 1e6 for x in replies if x.first_token_ns]
    gaps = [gap for gap in (time_per_token_ms(x, tokens_out(x)) for x in replies) if gap]
    return {
        "latency_ms": summary([(x.end_ns - x.start_ns) / 1e6 for x in replies]),
        "ttft_ms": summary(first) if first else None,
        "tpot_ms": summary(gaps) if gaps else None,
        "tokens_in": _mean([x.tokens_in for x in replies]),
        "tokens_out": _mean([tokens_out(x) for x in replies]),
    }


def time_per_token_ms(reply: Reply, tokens_out: int | None) -> float | None:
    """Mean time between a request's tokens in ms; None if it has no two that came apart.

    Where all the text comes in one piece, the stream says nothing of the time between tokens.

    Args:
        reply: The request.
        tokens_out: Tokens that it generated.
    """
    if reply.first_token_ns is None or reply.last_token_ns is None or tokens_out is None:
        return None
    apart_ns = reply.last_token_ns - reply.first_token_ns
    return apart_ns / (tokens_out - 1) / 1e6 if tokens_out > 1 and apart_ns > 0 else None


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return statistics.fmean(known) if known and len(known) == len(counts) else None
