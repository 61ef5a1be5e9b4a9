"""Display formats of times and energies, the same in every command, page and report."""

from __future__ import annotations

from datetime import datetime

from costprobe.core.units import significant


def local(time_ns: int) -> str:
    """Format UTC ns as local time of this host, with the name of its zone."""
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def ago(duration_s: float) -> str:
    """Return a rounded duration for display: "12 s", "3 min", "2.5 h", "4 d".

    After the wall clock was set back a time in the future is 0 s ago.
    """
    duration_s = max(0.0, duration_s)
    for limit_s, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f} {unit}"
    return f"{duration_s / 86_400:.1f} d"


def joules(value: float) -> str:
    """Joules with four significant digits: "0.3251 J", "45,000 J"."""
    return f"{significant(value)} J"


# How tokens are counted where the answers of a server have no `usage`, as llama.cpp's may.
CHUNKS = "chunks of the stream counted as tokens"
