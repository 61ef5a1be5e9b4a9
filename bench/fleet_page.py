"""Results of a fleet run: a progress line, rows for the table of all benchmarks, and the page.

Measured and extrapolated figures are in separate tables.
"""

import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_result import Result
from fleet_rows import Rows
from table import row

PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
# Row arrivals by case and whether there is a flush schedule, in multiples of the row rate.
Arrivals = Mapping[tuple[str, bool], float]
FLUSH_S = 10.0
DAY_S = 86_400
SERIES_ROW = "| series | "
FLEET = 10_000
ARRIVALS_MAX = 1.5
BUSY = (
    "The machine was busy with other work: the rates, times and CPU of this run are lower than"
    " those of an idle machine."
)
TOO_SHORT = (
    "CPU, memory and disk are extrapolated from fleets with all series, which this run did not"
    " reach:  `python bench/fleet.py --keep` on an idle machine adds them."
)


def line(result: Result, rows: Rows) -> str:
    """Format a result as one line."""
    needed = rows.per_s * result.hosts
    return (
        f"{result.server:15} {result.hosts:6} hosts: {result.each.per_s:8,.0f} rows/s in requests of"
        f" one host ({needed:,.0f} needed), {result.packed.per_s:8,.0f} in large ones;"
        f" {result.rows:,} rows, {result.series:,} series, {result.disk_bytes / 1e6:,.0f} MB on disk,"
        f" {result.packed.rss_bytes / 1e6:,.0f} MB; {result.panel}: {result.query_s:.2f} s"
    )


def entries(rows: Rows, results: Sequence[Result], arrivals: Arrivals) -> list[dict[str, Any]]:
    """Return all results as rows of the table of all benchmarks."""
    lines = []
    for result in results:
        lines += of_result(result, rows)
    for case, goal in (("rollout", ARRIVALS_MAX), ("outage", None), ("outage, first 10 s", None)):
        ours, peer = arrivals[case, True], arrivals[case, False]
        lines.append(
            row(
                f"arrivals after {case}",
                ours,
                "x the fleet's row rate",
                peer=peer,
                peer_name="without flush schedule",
                goal=f"at most {goal}" if goal else "",
                met=ours <= goal if goal else None,
                note="worst second" if "first" not in case else "mean over them",
            )
        )
    # If nothing was acknowledged in time, CPU per row is not defined.
    return [line for line in lines if math.isfinite(line["ours"])]


def of_result(result: Result, rows: Rows) -> list[dict[str, Any]]:
    """Return the rows of one fleet in one database."""
    label = f"{result.short}, {result.hosts:,} hosts"
    needed = rows.per_s * result.hosts
    complete = "" if result.begun == result.hosts else f" ({result.begun:,} hosts with all series)"
    # No goal for 10,000 hosts: the page states what they need, and this machine is smaller.
    goal = "at least the fleet's row rate" if result.hosts <= FLEET // 10 else ""
    keeps_up = result.each.per_s >= needed
    per_million = f"per 1 M rows{complete}"
    return [
        row(
            f"{label}: acknowledged, one host per request",
            result.each.per_s,
            "rows/s",
            peer=needed,
            peer_name="the fleet's row rate",
            goal=goal,
            met=keeps_up if goal else None,
            note=f"p99 of a request {result.each.slow_s * 1000:.0f} ms{complete}",
        ),
        row(f"{label}: acknowledged, large requests", result.packed.per_s, "rows/s"),
        row(
            f"{label}: CPU, one host per request",
            result.each.cpu_per_million_s,
            "s",
            note=per_million,
        ),
        row(
            f"{label}: CPU, large requests", result.packed.cpu_per_million_s, "s", note=per_million
        ),
        row(
            f"{label}: resident",
            result.packed.rss_bytes / 1e6,
            "MB",
            note=f"{result.series} series",
        ),
        row(f"{label}: disk", result.row_bytes, "MB", note=per_million),
        row(f"{label}: {result.panel}", result.query_s, "s", note=f"over {result.rows} rows"),
    ]


def host_table(rows: Rows) -> str:
    """Format the rows of one host by measurement."""
    lines = [
        "| measurement | series | fields | interval | rows per day |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in sorted({shape.measurement for shape in rows.shapes}):
        shapes = [shape for shape in rows.shapes if shape.measurement == name]
        every = "/".join(f"{each:g} s" for each in sorted({shape.every_s for shape in shapes}))
        per_day = sum(DAY_S / shape.every_s for shape in shapes)
        fields = sum(shape.fields for shape in shapes)
        lines.append(f"| `{name}` | {len(shapes)} | {fields} | {every} | {per_day:,.0f} |")
    per_day = rows.per_s * DAY_S
    lines.append(
        f"| **all** | {rows.series} | {rows.fields} | {rows.per_s:.2f} rows/s | {per_day:,.0f} |"
    )
    return "\n".join(lines)


def fleet_row(result: Result, rows: Rows) -> str:
    """Format one fleet in one database as a row of the page."""
    return (
        f"| {result.server} | {result.hosts:,} | {rows.per_s * result.hosts:,.0f}"
        f" | {result.each.per_s:,.0f} rows/s | {result.each.slow_s * 1000:,.0f} ms"
        f" | {result.packed.per_s:,.0f} rows/s"
        f" | {result.each.cpu_per_million_s:,.0f} / {result.packed.cpu_per_million_s:,.0f}"
        f" | {result.packed.rss_bytes / 1e6:,.0f} MB | {result.row_bytes:,.0f} MB"
        f" | {result.series:,} of {result.begun:,} hosts"
        f" | {result.panel}: {result.query_s:.2f} s over {result.rows:,} rows |"
    )


def measured_table(rows: Rows, results: Iterable[Result]) -> str:
    """Format the measured figures of each fleet."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    lines = [
        (
            f"{when}, {os.cpu_count()} cores (load {os.getloadavg()[1]:.1f}), {platform.machine()}; database"
            " and load generator on the same cores."
        ),
        "",
        (
            "| database | hosts | fleet's rows/s | acknowledged, one host per request | p99 | acknowledged,"
            " 5,000 rows per request | CPU s per 1 M rows | resident | disk per 1 M rows | series |"
            " slowest panel |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [fleet_row(result, rows) for result in results]
    if os.getloadavg()[1] > 2 * (os.cpu_count() or 1):
        lines += ["", BUSY]
    return "\n".join(lines)


def arrivals_table(arrivals: Arrivals) -> str:
    """Format the arrivals."""
    lines = [
        "| row arrivals per second, as a multiple of the fleet's row rate | without flush schedule | with |",
        "| --- | --- | --- |",
    ]
    descriptions = {
        "rollout": "all hosts started within 2 s: worst second",
        "outage": "outage of 10 min: worst second after it",
        "outage, first 10 s": "outage of 10 min: mean of the first 10 s after it",
    }
    for case, text in descriptions.items():
        lines.append(f"| {text} | {arrivals[case, False]:.1f} | {arrivals[case, True]:.1f} |")
    return "\n".join(lines)


def sizing_table(rows: Rows, results: Sequence[Result]) -> str:
    """Format the requirements of 10,000 hosts, extrapolated from the largest fleets with all series."""
    per_s = rows.per_s * FLEET
    lines = [
        f"| {FLEET:,} hosts | "
        + " | ".join(dict.fromkeys(r.server for r in results))
        + " | basis |",
        "| --- | --- | --- | --- |",
        f"| rows per second | {per_s:,.0f} | {per_s:,.0f} | counted in a host's rows |",
        f"| requests per second | {FLEET / FLUSH_S:,.0f} | {FLEET / FLUSH_S:,.0f} | flush_every 10 s |",
    ]
    complete = {
        short: [r for r in results if r.short == short and r.begun == r.hosts]
        for short in dict.fromkeys(r.short for r in results)
    }
    lines.append(series_row(rows))
    if not all(complete.values()):
        # The smallest fleet did not have all series in time: it must not be extrapolated.
        return "\n".join([*lines, "", TOO_SHORT])
    best = {s: max(f, key=lambda r: r.hosts) for s, f in complete.items()}
    small = {s: first(results, s) for s in complete}
    lines.append(
        row_of(
            "cores for writes, one host / 5,000 rows per request",
            best,
            lambda r: (
                f"{r.each.cpu_per_million_s * per_s / 1e6:.1f}"
                f" / {r.packed.cpu_per_million_s * per_s / 1e6:.1f}"
            ),
            "proportional to rows, from",
            complete,
        )
    )
    lines.append(row_of("memory", best, memory, "proportional to series, from", complete))
    lines.append(
        row_of(
            "disk per day, full resolution",
            small,
            lambda r: f"{r.row_bytes * per_s * DAY_S / 1e9:,.0f} GB",
            "proportional to rows, from",
            complete,
        )
    )
    lines.append(
        row_of(
            "slowest panel over 24 h, full resolution, at most",
            small,
            lambda r: f"{r.query_s / r.rows * per_s * DAY_S / 60:,.0f} min",
            "proportional to rows, from",
            complete,
        )
    )
    return "\n".join(lines)


def first(results: Iterable[Result], short: str) -> Result:
    """Return a database's smallest fleet."""
    return next(result for result in results if result.short == short)


def memory(result: Result) -> str:
    """Return the memory of a large fleet: that of the empty server plus that of each series."""
    per_series = (result.packed.rss_bytes - result.empty_bytes) / result.series
    all_bytes = result.empty_bytes + per_series * result.series / result.begun * FLEET
    return f"{all_bytes / 1e9:,.0f} GB"


def row_of(
    name: str,
    chosen: Mapping[str, Result],
    value: Callable[[Result], str],
    basis: str,
    complete: Iterable[str],
) -> str:
    """Format a row: a value for each database, and the number of hosts it is extrapolated from."""
    hosts = ", ".join(f"{chosen[short].hosts:,}" for short in complete)
    cells = " | ".join(value(chosen[short]) for short in complete)
    return f"| {name} | {cells} | {basis} {hosts} hosts |"


def keep(rows: Rows, results: Sequence[Result], arrivals: Arrivals) -> None:
    """Write the tables between the page's markers."""
    _write(
        ("host", host_table(rows)),
        ("measured", measured_table(rows, results)),
        ("arrivals", arrivals_table(arrivals)),
        ("sizing", sizing_table(rows, results)),
    )


def keep_counts(rows: Rows) -> None:
    """Write what follows from the rows of a host alone: their table, and the series of a fleet."""
    _write(("host", host_table(rows)))
    lines = PAGE.read_text().splitlines(keepends=True)
    counted = "".join(
        f"{series_row(rows)}\n" if line.startswith(SERIES_ROW) else line for line in lines
    )
    PAGE.write_text(counted)


def series_row(rows: Rows) -> str:
    """Format the series of 10,000 hosts."""
    series, fields = rows.series * FLEET, rows.fields * FLEET
    return f"{SERIES_ROW}{series:,} | {fields:,} | counted in a host's rows |"


def _write(*tables: tuple[str, str]) -> None:
    text = PAGE.read_text()
    for name, table in tables:
        before, begin, rest = text.partition(f"<!-- {name}: begin -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not begin or not end:
            raise SystemExit(f"{PAGE}: the markers of {name} are missing")
        text = f"{before}{begin}\n{table}\n{end}{after}"
    PAGE.write_text(text)
