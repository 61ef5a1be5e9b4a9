"""What whole milliseconds save: the same rows twice, with timestamps as they come and rounded.

VictoriaMetrics keeps milliseconds whatever it is sent, so that only InfluxDB is asked.
"""

from fleet_load import Load
from fleet_rows import thin

GRIDS_NS = {"ns": 1, "ms": 1_000_000}
HOSTS = 5


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
    server.settled_bytes(seconds + 10)
    return {database: server.packed_bytes(database) / sent for database, sent in found.items()}
