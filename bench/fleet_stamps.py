"""Disk saved by whole milliseconds: the same rows with nanosecond and with rounded timestamps.

VictoriaMetrics always stores milliseconds, so only InfluxDB is measured.
"""

from fleet_load import Load
from fleet_rows import Rows, only
from fleet_servers import Influx

GRIDS_NS = {"ns": 1, "ms": 1_000_000}
HOSTS = 5


def row_bytes(server: Influx, rows: Rows, seconds: float, rounds: int) -> dict[str, float]:
    """Return the disk bytes of a row by timestamp resolution.

    Args:
        server: An empty InfluxDB.
        rows: Rows of a host.
        seconds: Maximum duration of each, in s.
        rounds: Maximum number of rounds of each.
    """
    server.begin(*GRIDS_NS)
    devices = only(rows, {"device"})
    rows_sent = {}
    for database, grid_ns in GRIDS_NS.items():
        sent = Load(
            server,
            devices,
            HOSTS,
            seconds,
            request_rows=5000,
            rounds=rounds,
            grid_ns=grid_ns,
            database=database,
        ).run()
        rows_sent[database] = sent.rows
    server.settled_bytes(seconds + 10)
    return {
        database: server.compacted_bytes(database) / sent for database, sent in rows_sent.items()
    }
