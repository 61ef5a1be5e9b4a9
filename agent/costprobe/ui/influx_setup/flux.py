"""The Flux tasks for an InfluxDB 2.x: hourly rows, and a check for silent agents."""

from __future__ import annotations

from costprobe.ui.influx_setup.steps import LATE_H, ROLLED

ROLLUP_TASK = "costprobe hourly"
DEADMAN_TASK = "costprobe deadman"
# An agent without rows for this time counts as dead.
DEAD_AFTER_S = 300
# Id of our check; ids in InfluxDB have 16 hexadecimal digits.
_CHECK_ID = "1f3c057dead00000"

_ROLLUP = """import "date"

option task = {{name: {name}, every: 1h, offset: 5m}}

stop = date.truncate(t: now(), unit: 1h)
start = date.sub(d: {late_h}h, from: stop)
"""
_ROLLED = """
from(bucket: {source})
    |> range(start: start, stop: stop)
    |> filter(fn: (r) => r._measurement == {measurement}{basis})
    |> filter(fn: (r) => {fields})
    |> aggregateWindow(every: 1h, fn: {kind}, timeSrc: "_start", createEmpty: false)
    |> to(bucket: {target})
"""
_DEADMAN = """import "experimental"
import "influxdata/influxdb/monitor"

option task = {{name: {name}, every: 1m}}

from(bucket: {source})
    |> range(start: -1d)
    |> filter(fn: (r) => r._measurement == "agent" and r._field == "rss_bytes")
    |> group(columns: ["host"])
    |> monitor.deadman(t: experimental.subDuration(from: now(), d: {dead_after_s}s))
    |> monitor.check(
        crit: (r) => r.dead,
        messageFn: (r) => "costprobe on ${{r.host}} has been silent for {dead_after_s} s",
        data: {{_check_id: "{check_id}", _check_name: {name}, _type: "deadman", tags: {{}}}},
    )
"""


def string(text: str) -> str:
    """Quote a string; a dollar sign before a brace would start an expression."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return '"' + escaped.replace("\n", "\\n") + '"'


def rollup_task(source: str, target: str) -> str:
    """Return the task that computes the hourly rows of all series.

    Args:
        source: Bucket that it reads.
        target: Bucket that it writes to.
    """
    head = _ROLLUP.format(name=string(ROLLUP_TASK), late_h=LATE_H)
    return head + "".join(
        _ROLLED.format(
            source=string(source),
            target=string(target),
            measurement=string(rolled.measurement),
            basis=f" and r.basis == {string(rolled.basis)}" if rolled.basis else "",
            fields=" or ".join(f"r._field == {string(field)}" for field in fields),
            kind=kind,
        )
        for rolled in ROLLED
        for kind, fields in rolled.fields.items()
    )


def deadman_task(source: str) -> str:
    """Return the check of a bucket that writes a critical status for each host without rows of `agent`."""
    return _DEADMAN.format(
        name=string(DEADMAN_TASK),
        source=string(source),
        dead_after_s=DEAD_AFTER_S,
        check_id=_CHECK_ID,
    )
