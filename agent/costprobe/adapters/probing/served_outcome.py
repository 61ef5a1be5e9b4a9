"""The outcome of a probe of a server, in the format of other probes.

A request counts as an inference, with its latency and its share of the window's time and energy.
Tokens and time to first token are additional fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costprobe.adapters.probing.outcome import ProbeOutcome, check_result, finite, number, optional
from costprobe.core.records import FieldValue, ProbeResult

MAX_ERROR_KINDS = 16
_PERCENTILES = ("p50", "p90", "p99", "mean")
_LOAD_FIGURES = (
    *("goodput_per_s", "offered_per_s", "in_flight", "decode_steps"),
    *("late_ms", "client_busy_share"),
)


def read_served_outcome(
    request_probe: str, devices: str, message: Mapping[str, Any], pids: tuple[int, ...]
) -> ProbeOutcome:
    """Validate a worker's result of a probe of a server.

    Args:
        request_probe: Name of the requested probe.
        devices: Name of the server's devices.
        message: The worker's result.
        pids: The worker's processes.

    Raises:
        ValueError: A field is missing or invalid.
    """
    try:
        result = ProbeResult(
            probe=request_probe,
            device=devices,
            batch=1,
            latency_ms={str(k): finite(v) for k, v in dict(message["latency_ms"]).items()},
            samples=int(message["samples"]),
            stop_reason=str(message["stop_reason"]),
            window_start_ns=int(message["window_start_ns"]),
            window_end_ns=int(message["window_end_ns"]),
            inferences=finite(message["window_requests"]),
            has_energy_window=bool(message["has_energy_window"]),
            h2d_ms=None,
            busy_s=finite(message["busy_s"]),
            fingerprint=str(message["fingerprint"]),
            software={str(k): str(v) for k, v in dict(message["software"]).items()},
            tags={"concurrency": str(int(message["concurrency"]))},
            fields=_fields(message),
            tokens_in=optional(message["window_tokens_in"]),
            tokens_out=optional(message["window_tokens_out"]),
        )
        steady = int(message["steady_start_ns"]), int(message["steady_end_ns"])
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    check_result(result, steady)
    return ProbeOutcome(result, *steady, pids, (), load=_load(message.get("load")))


def _load(message: Any) -> dict[str, float]:  # noqa: ANN401 - from another process
    """Return the figures that only a point of a load curve has; empty for a run of a probe."""
    if not isinstance(message, dict):
        return {}
    gaps = message.get("itl_ms")
    found = {
        f"itl_{figure}_ms": number(gaps.get(figure)) if isinstance(gaps, dict) else None
        for figure in _PERCENTILES
    }
    found |= {name: number(message.get(name)) for name in _LOAD_FIGURES}
    return {name: value for name, value in found.items() if value is not None}


def _fields(message: Mapping[str, Any]) -> dict[str, FieldValue | None]:
    """Return the fields of `probe` that exist only for servers."""
    fields: dict[str, FieldValue | None] = {"requests": int(message["requests"])}
    for name in ("ttft", "tpot"):
        figures = message[f"{name}_ms"]
        for figure in _PERCENTILES:
            if isinstance(figures, dict):
                fields[f"{name}_{figure}_ms"] = number(figures.get(figure))
    fields["tokens_in"] = number(message["tokens_in"])
    fields["tokens_out"] = number(message["tokens_out"])
    fields["cached_tokens"] = number(message["cached_tokens"])
    cached = message["cached"]
    fields["cached"] = cached if isinstance(cached, bool) else None
    source, errors = message["token_source"], message["errors"]
    fields["token_source"] = None if source is None else str(source)
    counts = errors.items() if isinstance(errors, dict) else ()
    fields["errors"] = sum(int(count) for _, count in list(counts)[:MAX_ERROR_KINDS])
    return fields
