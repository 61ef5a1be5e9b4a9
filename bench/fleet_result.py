"""Result of a fleet run."""

from dataclasses import dataclass

from fleet_load import Sent


@dataclass(frozen=True)
class Result:
    """One fleet in one database.

    Attributes:
        server: Name of the database.
        short: Its name in file names.
        hosts: Number of hosts.
        begun: Hosts that had a row of each series in time; only these sent the rounds.
        fill: The first row of each series, in large requests.
        each: Rounds in requests of one host each, as hosts send them.
        packed: Rounds in requests of 5,000 rows, as a relay sends them.
        begun_bytes: Size of its files when each series had a row.
        disk_bytes: Size of its files at the end.
        empty_bytes: Its resident memory before the first row.
        series: Number of series reported by the database.
        panel: Slowest panel of the fleet dashboard.
        query_s: Duration of its query.
    """

    server: str
    short: str
    hosts: int
    begun: int
    fill: Sent
    each: Sent
    packed: Sent
    begun_bytes: int
    disk_bytes: int
    empty_bytes: int
    series: int
    panel: str
    query_s: float

    @property
    def rows(self) -> int:
        """All acknowledged rows."""
        return self.fill.rows + self.each.rows + self.packed.rows

    @property
    def row_bytes(self) -> float:
        """Disk bytes of a row of an existing series."""
        rows = self.each.rows + self.packed.rows
        return max(0, self.disk_bytes - self.begun_bytes) / rows if rows else float("nan")
