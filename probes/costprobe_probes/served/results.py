"""Figures of a load: latency, time to first token, time per token, and token counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from costprobe_probes.served.outcome import Reply
from costprobe_probes.stats import summary

# A share from which on a cache has answered most of the work.
MOST = 0.5

# Returns the tokens that a request generated; None if unknown.
TokensOut = Callable[[Reply], "int | None"]


def tokens_counter(replies: Sequence[Reply]) -> tuple[str | None, TokensOut]:
    """Choose how generated tokens are counted, the same way for all requests.

    Args:
        replies: All answered requests.

    Returns:
        "usage" if the server counted tokens in every response; else "chunks", where a chunk of the
        stream counts as a token; None without streams. And the function that counts.
    """
    if any(x.chunks is None for x in replies):
        return None, lambda _: None
    if all(x.tokens_out is not None for x in replies):
        return "usage", lambda x: x.tokens_out
    return "chunks", lambda x: x.chunks


def figures(replies: Sequence[Reply], tokens_out: TokensOut) -> dict[str, Any]:
    """Return summaries in ms, and mean token counts; None where there are no values.

    Args:
        replies: Timed requests, at least one.
        tokens_out: Returns the tokens that a request generated.
    """
    first = [(x.first_token_ns - x.start_ns) / 1e6 for x in replies if x.first_token_ns]
    gaps = [gap for gap in (time_per_token_ms(x, tokens_out(x)) for x in replies) if gap]
    return {
        "latency_ms": summary([(x.end_ns - x.start_ns) / 1e6 for x in replies]),
        "ttft_ms": summary(first) if first else None,
        "tpot_ms": summary(gaps) if gaps else None,
        "tokens_in": _mean([x.tokens_in for x in replies]),
        "tokens_out": _mean([tokens_out(x) for x in replies]),
        "cached_tokens": _mean(_cached_tokens(replies)),
    }


def is_cached(replies: Sequence[Reply], hits: int | None, *, varies: bool | None) -> bool | None:
    """Return whether a cache of the server answered most of the work; None if unknown.

    Args:
        replies: Answered requests, at least one.
        hits: Requests that the server's response cache answered meanwhile; None if unknown.
        varies: Whether each prompt differed from its first token; None where there is no prompt.
    """
    if hits is not None:
        return hits >= MOST * len(replies)
    cached = _mean(_cached_tokens(replies))
    tokens_in = _mean([x.tokens_in for x in replies])
    if cached is not None and tokens_in:
        return cached >= MOST * tokens_in
    # Without a count, a repeated prompt has to be taken as cached.
    return None if varies is None else not varies


def _cached_tokens(replies: Sequence[Reply]) -> Sequence[int | None]:
    """Return the cached tokens of each request; vLLM omits a count of 0, so that none is 0 beside others."""
    counts = [x.cached_tokens for x in replies]
    return [count or 0 for count in counts] if any(counts) else counts


def time_per_token_ms(reply: Reply, tokens_out: int | None) -> float | None:
    """Return the mean time between the tokens of a request in ms; None with fewer than two arrivals.

    If all text arrives in one chunk, the time per token is unknown.

    Args:
        reply: The request.
        tokens_out: Tokens that it generated.
    """
    if reply.first_token_ns is None or reply.last_token_ns is None or tokens_out is None:
        return None
    apart_ns = reply.last_token_ns - reply.first_token_ns
    return apart_ns / (tokens_out - 1) / 1e6 if tokens_out > 1 and apart_ns > 0 else None


def _mean(counts: Sequence[int | None]) -> float | None:
    known_counts = [count for count in counts if count is not None]
    return (
        statistics.fmean(known_counts)
        if known_counts and len(known_counts) == len(counts)
        else None
    )
