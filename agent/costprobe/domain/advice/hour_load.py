"""The load of a device in an hour, from the rows of its telemetry or from a stored summary of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

from costprobe.core.device_names import TOGETHER
from costprobe.core.records import NS_PER_S
from costprobe.core.row_spans import RowEnd, row_spans
from costprobe.domain.advice.device_history import HOUR_NS, DeviceHistory, Hour, Interval

# Of each row of a device: those of `Interval`, in its order.
LOAD_FIELDS: Final = ("util_pct", "power_w", "mem_used_bytes")
# Those of them whose highest value is wanted of an aggregated row.
LOAD_HIGHEST: Final = ("mem_used_bytes",)
# Rows this far outside a span define where the rows at its edges begin, and hold their rest.
EDGE_NS: Final = 600 * NS_PER_S
# Minutes are kept as floats of 32 bits, which these digits identify.
_FLOAT_DIGITS: Final = 9

Row = tuple[RowEnd, Sequence[float | None]]


def is_on(names: str, device: str) -> bool:
    """Return whether a probe of these devices runs on a device, or on a slice of it."""
    return any(name == device or name.partition(".")[0] == device for name in names.split(TOGETHER))


def add_rows(
    history: DeviceHistory, rows: Iterable[Row], usual_s: float, within: tuple[int, int]
) -> None:
    """Add telemetry to a history.

    Args:
        history: The history.
        rows: The end and LOAD_FIELDS of each row of the device, over the span and EDGE_NS around it.
        usual_s: Length of a row in s if there are too few to derive it.
        within: The span in UTC ns; what lies outside is left out.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    spans = row_spans([end for end, _ in ordered], usual_s)
    for (_, values), (start_ns, _, covered_s) in zip(ordered, spans, strict=True):
        interval = Interval(start_ns, start_ns + int(covered_s * NS_PER_S), *values)
        history.add(interval, within)


def hour_document(history: DeviceHistory, hour_ns: int) -> list[Any]:
    """Return an hour of a history that has no other one, as JSON.

    Args:
        history: The history of the hour.
        hour_ns: Start of the hour in UTC ns.
    """
    hour = history.hours.get(hour_ns // HOUR_NS, Hour())
    return [
        hour.minutes,
        hour.util_pct_s,
        hour.util_s,
        hour.energy_j,
        hour.power_s,
        [float(f"{busy_s:.{_FLOAT_DIGITS}g}") for busy_s in hour.busy_s_by_minute],
        history.mem_used_bytes_max,
    ]


def add_document(history: DeviceHistory, hour_ns: int, document: Sequence[Any]) -> None:
    """Add an hour that `hour_document` returned.

    Args:
        history: The history.
        hour_ns: Start of the hour in UTC ns.
        document: The hour.
    """
    minutes, util_pct_s, util_s, energy_j, power_s, busy_s, mem_used_bytes_max = document
    hour = Hour(minutes, util_pct_s, util_s, energy_j, power_s, array("f", busy_s))
    history.add_hour(hour_ns // HOUR_NS, hour, mem_used_bytes_max)
