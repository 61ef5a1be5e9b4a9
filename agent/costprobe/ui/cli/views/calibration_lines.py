"""A calibration as JSON, and in words."""

from __future__ import annotations

from typing import Any

from costprobe.core.records import Point
from costprobe.core.units import counted
from costprobe.ui.text import joules

_UNCACHED = (
    "not measured, they weigh 0: the server's answers reported no cached tokens (vLLM:"
    " --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
)


def calibration_document(row: Point) -> dict[str, Any]:
    """Return a calibration as JSON, from its row."""
    names = [
        f"{what}_per_million_tokens_{kind}{end}_{unit}"
        for what, unit in (("time", "s"), ("energy", "j"))
        for kind in ("in", "cached", "out")
        for end in ("", "_low", "_high")
    ]
    tags = {name: row.tags.get(name) for name in ("service", "probe", "device")}
    own = ("prompt_s", "token_in_s", "token_out_s", "context_token_s", "cached_token_s")
    others = (*own, "tokens_in", "tokens_out", "in_flight", "windows", "fingerprint")
    fields = {name: row.fields.get(name) for name in (*others, *names)}
    return {"time_ns": row.time_ns, **tags, **fields}


def calibration_lines(document: dict[str, Any], load: str) -> list[str]:
    """Return a calibration in words.

    Args:
        document: The calibration as JSON.
        load: Its load in words.
    """
    place = f"{document['service']} on {document['device']}, {load}"
    lines = [f"{place}: {counted(document['windows'], 'window')}, intervals of 95 %"]
    kinds = (("in", "tokens in"), ("cached", "cached tokens in"), ("out", "tokens out"))
    for kind, words in kinds:
        parts = []
        for name, unit in (("time", "s"), ("energy", "j")):
            value, low, high = (
                document[f"{name}_per_million_tokens_{kind}{end}_{unit}"]
                for end in ("", "_low", "_high")
            )
            if value is not None:
                shown = joules if unit == "j" else _device_s
                parts.append(f"{shown(value)} ({shown(low)} to {shown(high)})")
        lines.append(f"  a million {words}: {', '.join(parts) or _UNCACHED}")
    return lines


def _device_s(value: float) -> str:
    return f"{value:,.4g} device-s"
