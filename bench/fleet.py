"""Load of a fleet: 100, 1,000 and 10,000 hosts write to a real InfluxDB and VictoriaMetrics.

    python bench/fleet.py                # about six minutes
    python bench/fleet.py --short        # about a minute
    python bench/fleet.py --keep         # also write the tables of docs/sizing.md
    python bench/fleet.py --json FILE    # also write the figures as JSON
    python bench/fleet.py --counts       # only write the table of a host's rows and their series

Everything is on loopback and bounded in time and rows. If the time ends before each series of
10,000 hosts has a row, the table states how many hosts had all of theirs.
"""

import argparse
import json
import logging
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import fleet_arrivals  # noqa: E402 - as above
import fleet_page  # noqa: E402 - the path is set above
import fleet_queries  # noqa: E402 - as above
import fleet_rows  # noqa: E402 - as above
from fakes.servers import running  # noqa: E402 - as above
from fleet_load import BATCH_ROWS, Load  # noqa: E402 - as above
from fleet_result import Result  # noqa: E402 - as above
from fleet_rows import Rows  # noqa: E402 - as above
from fleet_servers import Influx, Victoria  # noqa: E402 - as above
from table import Table, add_json, finish  # noqa: E402 - as above

SERVERS = (Influx, Victoria)
FLEETS = (100, 1_000, 10_000)
# Rows of new series take a database longer: small requests keep the run within its time.
FILL_ROWS = 1_000


@dataclass(frozen=True)
class Times:
    """Maximum duration of each step, in s, and the number of simulated delivery workers."""

    fill_s: float
    send_s: float
    settle_s: float
    query_s: float
    workers: int


LONG = Times(fill_s=25, send_s=8, settle_s=10, query_s=10, workers=2_000)
SHORT = Times(fill_s=2, send_s=1.5, settle_s=3, query_s=2, workers=400)


def measured(server: Influx | Victoria, rows: Rows, hosts: int, times: Times) -> Result:
    """Return a fleet's result on an empty server."""
    _, empty_bytes = server.usage()
    server.begin()
    fill = Load(
        server, rows, hosts, times.fill_s, request_rows=FILL_ROWS, rounds=1, everything=True
    ).run()
    begun_bytes = server.settled_bytes(times.settle_s)
    # Creating series is slower than appending to existing ones, so that it is measured separately.
    begun = max(1, min(hosts, fill.rows // rows.series))
    each = Load(server, rows, begun, times.send_s, from_round=1).run()
    from_round = 1 + each.rounds
    packed = Load(
        server, rows, begun, times.send_s, request_rows=BATCH_ROWS, from_round=from_round
    ).run()
    disk_bytes = server.settled_bytes(times.settle_s)
    panel, query_s = fleet_queries.slowest_panel(server, from_round + packed.rounds, times.query_s)
    return Result(
        server=server.name,
        short=server.short,
        hosts=hosts,
        begun=begun,
        fill=fill,
        each=each,
        packed=packed,
        begun_bytes=begun_bytes,
        disk_bytes=disk_bytes,
        empty_bytes=empty_bytes,
        series=server.series(),
        panel=panel,
        query_s=query_s,
    )


def run(
    times: Times,
) -> tuple[Rows, list[Result], dict[tuple[str, bool], float]]:
    """Measure everything: rows of a host, the fleets, arrivals."""
    rows = fleet_rows.captured()
    print(f"a host: {rows.series} series, {rows.fields} fields, {rows.per_s:.3f} rows/s")
    results = []
    with tempfile.TemporaryDirectory(prefix="costprobe-fleet-") as name:
        for kind in SERVERS:
            for hosts in FLEETS:
                folder = Path(name) / f"{kind.short}-{hosts}"
                with running(kind, folder, kind.program) as server:
                    results.append(measured(server, rows, hosts, times))
                print(fleet_page.line(results[-1], rows), flush=True)
    arrivals = fleet_arrivals.table(times.workers, rows.per_s)
    return rows, results, arrivals


def main() -> int:
    """Measure, print, and write the results that the options request."""
    parser = argparse.ArgumentParser(description="Load of a fleet on a database.")
    parser.add_argument("--short", action="store_true", help="about a minute")
    parser.add_argument("--keep", action="store_true", help="write the tables of docs/sizing.md")
    parser.add_argument(
        "--counts", action="store_true", help="only count a host's rows, for docs/sizing.md"
    )
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.counts:
        fleet_page.keep_counts(fleet_rows.captured())
        return 0
    # Thousands of workers log that their simulated server is unreachable.
    logging.disable(logging.CRITICAL)
    rows, results, arrivals = run(SHORT if arguments.short else LONG)
    entries = fleet_page.entries(rows, results, arrivals)
    if arguments.keep:
        fleet_page.keep(rows, results, arrivals)
        figures = [asdict(result) for result in results]
        (ROOT / "bench" / "results" / "fleet.json").write_text(json.dumps(figures, indent=1) + "\n")
    return finish(Table(rows=entries), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
