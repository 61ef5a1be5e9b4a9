"""What whole milliseconds save: the same rows twice, with timestamps as they come and rounded.

VictoriaMetrics keeps milliseconds whatever it is sent, so that only InfluxDB is asked.
"""

from fleet_load import Load
from fleet_rows import thin

GRIDS_NS = {"ns": 1, "ms": 1_000_000}
HOSTS = 20


def saved(server, rows, seconds, rounds):
    """Disk bytes of a row in either form.

    Args:
        server: An empty InfluxDB.
        rows: What a host sends.
        seconds: Most time for each.
        rounds: Most rounds for each.
    """
    server.begin(*GRIDS_NS)
    devices = thin(rows, {"device"})
    found = {}
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
        found[database] = sent.rows
    server.settled_bytes(3 * seconds + 6)
    return {
        database: sum(
            path.stat().st_size
            for part in ("data", "wal")
            for path in (server.folder / part / database).rglob("*")
            if path.is_file()
        )
        / rows_sent
        for database, rows_sent in found.items()
    }
