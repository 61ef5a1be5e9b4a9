"""The load that a service has in production: lengths of its requests, and how many are in flight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.core.records import Point
from costprobe.core.row_values import number
from costprobe.domain.costing.serving.calibration import LengthMix
from costprobe.domain.costing.serving.served import Counts
from costprobe.domain.costing.serving.token_weights import decode_batch


@dataclass(frozen=True, slots=True)
class ProductionLoad:
    """The mean load of a service while it is busy.

    Attributes:
        mix: Mean lengths of its requests; None if requests or tokens are not counted.
        in_flight: Requests that a server decodes at a time; None where its engine does not count
            the decode time of requests.
    """

    mix: LengthMix | None
    in_flight: int | None


def production_load(rows: Sequence[Point], servers: int) -> ProductionLoad:
    """Return the load of a service.

    Args:
        rows: Its rows of `serving`, those of the whole service only.
        servers: Number of servers that share the work.
    """
    counts = Counts(
        requests=_sum(rows, "requests"),
        tokens_in=_sum(rows, "tokens_in"),
        tokens_out=_sum(rows, "tokens_out"),
        decode_request_s=_sum(rows, "decode_request_s"),
    )
    busy_s = math.fsum(
        (number(row, "window_s") or 0.0) * share
        for row in rows
        if (share := number(row, "busy_share")) is not None
    ) or _sum(rows, "window_s")
    batch = decode_batch(counts, busy_s, servers)
    mix = None
    if counts.requests and counts.tokens_in and counts.tokens_out:
        tokens_out = max(2.0, counts.tokens_out / counts.requests)
        mix = LengthMix(max(1.0, counts.tokens_in / counts.requests), tokens_out)
    return ProductionLoad(mix, None if batch is None else max(1, round(batch)))


def _sum(rows: Sequence[Point], field: str) -> float:
    return math.fsum(number(row, field) or 0.0 for row in rows)
