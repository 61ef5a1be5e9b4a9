"""Words of the series of services: what is counted, and what cost is divided into."""

from __future__ import annotations

from typing import Final, Literal, get_args

Measure = Literal[
    "requests",
    "errors",
    "inferences",
    "tokens_in",
    "tokens_out",
    "cached_tokens",
    "prefill_s",
    "decode_s",
    "compute_s",
    "decode_request_s",
    "compute_request_s",
    "executions",
]
MEASURES: tuple[Measure, ...] = get_args(Measure)
# What a part of a device's cost was for.
Part = Literal["busy", "idle", "held", "probing", "unallocated"]
# Tenant of the cost that no counter attributes.
UNATTRIBUTED: Final = "unattributed"
