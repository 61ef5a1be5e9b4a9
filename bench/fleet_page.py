"""What a fleet's run came to: a line while it runs, entries for the table of all benchmarks, the page.

What was measured and what is worked out from it are kept apart, in tables of their own.
"""

import math
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
FLUSH_S = 10.0
DAY_S = 86_400
FLEET = 10_000
TURNS_MOST = 1.5
BUSY = (
    "The machine was busy with other work: the rates, times and CPU of this run say what it had left,"
    " and not what a database can do."
)
TOO_SHORT = (
    "CPU, memory and disk are worked out from fleets that had begun in full, which this run had no"
    " time for: `python bench/fleet.py --keep` on a quiet machine adds them."
)


def line(result, rows):
    """A result in a line."""
    needed = rows.per_s * result.hosts
    return (
        f"{result.server:15} {result.hosts:6} hosts: {result.each.per_s:8,.0f} rows/s in requests of"
        f" a host ({needed:,.0f} needed), {result.packed.per_s:8,.0f} in large ones;"
        f" {result.rows:,} rows, {result.series:,} series, {result.disk_bytes / 1e6:,.0f} MB on disk,"
        f" {result.packed.rss_bytes / 1e6:,.0f} MB; {result.panel}: {result.query_s:.2f} s"
    )


def entry(name, ours, unit, *, peer=None, peer_name="", goal="", met=None, note=""):  # noqa: PLR0913 - the table's columns
    """A row of the table of all benchmarks."""
    return {
        "issue_line": 8,
        "name": name,
        "ours": float(ours),
        "unit": unit,
        "peer": None if peer is None else float(peer),
        "peer_name": peer_name,
        "ratio": float(ours) / float(peer) if peer else None,
        "goal": goal,
        "met": met,
        "note": note,
    }


def entries(rows, results, stamps, turns):
    """Everything measured, as rows of the table of all benchmarks."""
    found = []
    for result in results:
        found += of_result(result, rows)
    for case, goal in (("rollout", TURNS_MOST), ("outage", None), ("outage, first 10 s", None)):
        ours, peer = turns[case, True], turns[case, False]
        found.append(
            entry(
                f"arrivals after a {case}",
                ours,
                "x the fleet's rows/s",
                peer=peer,
                peer_name="without turns",
                goal=f"at most {goal}" if goal else "",
                met=ours <= goal if goal else None,
                note="worst second" if "first" not in case else "mean of them",
            )
        )
    found.append(
        entry(
            "disk of a device row, timestamps in whole ms",
            stamps["ms"],
            "bytes",
            peer=stamps["ns"],
            peer_name="in ns",
            note="InfluxDB 1.6.7; VictoriaMetrics keeps ms",
        )
    )
    # Where nothing was acknowledged in time, there is no CPU of a row.
    return [row for row in found if math.isfinite(row["ours"])]


def of_result(result, rows):
    """A fleet in a database."""
    who = f"{result.short}, {result.hosts:,} hosts"
    needed = rows.per_s * result.hosts
    whole = "" if result.begun == result.hosts else f" ({result.begun:,} hosts begun in time)"
    # A goal on what ten thousand hosts need would ask it of this machine: it is for the page to say.
    goal = "at least what they make" if result.hosts <= FLEET // 10 else ""
    keeps_up = result.each.per_s >= needed
    million = f"for 1 M rows{whole}"
    return [
        entry(
            f"{who}: acknowledged, a request a host",
            result.each.per_s,
            "rows/s",
            peer=needed,
            peer_name="what they make",
            goal=goal,
            met=keeps_up if goal else None,
            note=f"p99 of a request {result.each.slow_s * 1000:.0f} ms{whole}",
        ),
        entry(f"{who}: acknowledged, large requests", result.packed.per_s, "rows/s"),
        entry(f"{who}: CPU, a request a host", result.each.cpu_per_million_s, "s", note=million),
        entry(f"{who}: CPU, large requests", result.packed.cpu_per_million_s, "s", note=million),
        entry(
            f"{who}: resident", result.packed.rss_bytes / 1e6, "MB", note=f"{result.series} series"
        ),
        entry(f"{who}: disk", result.row_bytes, "MB", note=million),
        entry(f"{who}: {result.panel}", result.query_s, "s", note=f"over {result.rows} rows"),
    ]


def host_table(rows):
    """What one host sends, by measurement."""
    lines = [
        "| measurement | series | fields | a row every | rows a day |",
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


def fleet_row(result, rows):
    """A fleet in a database, as a row of the page."""
    return (
        f"| {result.server} | {result.hosts:,} | {rows.per_s * result.hosts:,.0f}"
        f" | {result.each.per_s:,.0f} rows/s | {result.each.slow_s * 1000:,.0f} ms"
        f" | {result.packed.per_s:,.0f} rows/s"
        f" | {result.each.cpu_per_million_s:,.0f} / {result.packed.cpu_per_million_s:,.0f}"
        f" | {result.packed.rss_bytes / 1e6:,.0f} MB | {result.row_bytes:,.0f} MB"
        f" | {result.series:,} of {result.begun:,} hosts"
        f" | {result.panel}: {result.query_s:.2f} s over {result.rows:,} rows |"
    )


def measured_table(rows, results):
    """What was measured, fleet by fleet."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    lines = [
        (
            f"{when}, {os.cpu_count()} cores (load {os.getloadavg()[1]:.1f}), {platform.machine()}; database"
            " and simulator on the same cores."
        ),
        "",
        (
            "| database | hosts | they make, rows/s | acknowledged, a request a host | p99 | acknowledged,"
            " 5,000 rows a request | CPU s for 1 M rows | resident | disk for 1 M rows | series |"
            " slowest panel |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [fleet_row(result, rows) for result in results]
    if os.getloadavg()[1] > 2 * (os.cpu_count() or 1):
        lines += ["", BUSY]
    return "\n".join(lines)


def turns_table(stamps, turns):
    """Turns and timestamps."""
    lines = [
        "| rows that arrive, as a multiple of what the fleet makes a second | without turns | with |",
        "| --- | --- | --- |",
    ]
    told = {
        "rollout": "all hosts started within 2 s: worst second",
        "outage": "ten minutes' outage: worst second after it",
        "outage, first 10 s": "ten minutes' outage: the first ten seconds after it",
    }
    for case, text in told.items():
        lines.append(f"| {text} | {turns[case, False]:.1f} | {turns[case, True]:.1f} |")
    saved = 1 - stamps["ms"] / stamps["ns"]
    lines += [
        "",
        (
            f"A device's row takes {stamps['ns']:.1f} bytes of InfluxDB's disk with timestamps as they come"
            f" and {stamps['ms']:.1f} in whole milliseconds ({saved:+.1%} saved)."
        ),
    ]
    return "\n".join(lines)


def sizing_table(rows, results):
    """What 10,000 hosts need, worked out from the largest fleets whose series had all begun."""
    per_s = rows.per_s * FLEET
    lines = [
        f"| {FLEET:,} hosts | "
        + " | ".join(dict.fromkeys(r.server for r in results))
        + " | how known |",
        "| --- | --- | --- | --- |",
        f"| rows a second | {per_s:,.0f} | {per_s:,.0f} | counted from a host's rows |",
        f"| requests a second | {FLEET / FLUSH_S:,.0f} | {FLEET / FLUSH_S:,.0f} | flush_every 10 s |",
    ]
    whole = {
        short: [r for r in results if r.short == short and r.begun == r.hosts]
        for short in dict.fromkeys(r.short for r in results)
    }
    lines.append(
        f"| series | {rows.series * FLEET:,} | {rows.fields * FLEET:,} | counted from a host's rows |"
    )
    if not all(whole.values()):
        # The smallest fleet had not begun in time: nothing may be worked out from it.
        return "\n".join([*lines, "", TOO_SHORT])
    best = {s: max(f, key=lambda r: r.hosts) for s, f in whole.items()}
    small = {s: first(results, s) for s in whole}
    lines.append(
        row_of(
            "cores to write, a request a host / 5,000 rows a request",
            best,
            lambda r: (
                f"{r.each.cpu_per_million_s * per_s / 1e6:.1f}"
                f" / {r.packed.cpu_per_million_s * per_s / 1e6:.1f}"
            ),
            "in proportion to rows, from",
            whole,
        )
    )
    lines.append(row_of("memory", best, memory, "in proportion to series, from", whole))
    lines.append(
        row_of(
            "disk a day, in full resolution",
            small,
            lambda r: f"{r.row_bytes * per_s * DAY_S / 1e9:,.0f} GB",
            "in proportion to rows, from",
            whole,
        )
    )
    lines.append(
        row_of(
            "slowest panel over 24 h, in full resolution, at most",
            small,
            lambda r: f"{r.query_s / r.rows * per_s * DAY_S / 60:,.0f} min",
            "in proportion to rows, from",
            whole,
        )
    )
    return "\n".join(lines)


def first(results, short):
    """A database's smallest fleet."""
    return next(result for result in results if result.short == short)


def memory(result):
    """Memory of a large fleet: what a server takes without rows, and each series."""
    per_series = (result.packed.rss_bytes - result.empty_bytes) / result.series
    all_bytes = result.empty_bytes + per_series * result.series / result.begun * FLEET
    return f"{all_bytes / 1e9:,.0f} GB"


def row_of(name, chosen, value, how, whole):
    """A row: a value for each database, and from how many hosts it is worked out."""
    hosts = ", ".join(f"{chosen[short].hosts:,}" for short in whole)
    cells = " | ".join(value(chosen[short]) for short in whole)
    return f"| {name} | {cells} | {how} {hosts} hosts |"


def keep(rows, results, stamps, turns):
    """Writes the tables between the page's markers."""
    text = PAGE.read_text()
    for name, table in (
        ("host", host_table(rows)),
        ("measured", measured_table(rows, results)),
        ("turns", turns_table(stamps, turns)),
        ("sizing", sizing_table(rows, results)),
    ):
        before, begin, rest = text.partition(f"<!-- {name}: begin -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not begin or not end:
            raise SystemExit(f"{PAGE}: the markers of {name} are gone")
        text = f"{before}{begin}\n{table}\n{end}{after}"
    PAGE.write_text(text)
