"""The two databases under load: started with short settling times, and what they take of the host."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from fakes.servers import InfluxDB, VictoriaMetrics, get

from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DATABASE = "fleet"
# The time after which InfluxDB packs what nobody writes to any more is 4 h by default; what it
# packs it into is the same.
SETTLING = """[data]
  cache-snapshot-write-cold-duration = "2s"
  compact-full-write-cold-duration = "4s"
  index-version = "inmem"
  max-series-per-database = 0
  max-values-per-tag = 0
"""
QUERY_TIMEOUT_S = 60.0


class Measured:
    """What both servers have in common here."""

    def usage(self):
        """(CPU seconds so far, resident bytes now)."""
        pid = self._process.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(row for row in status.splitlines() if row.startswith("VmRSS"))
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S, int(resident.split()[1]) * 1024

    def disk_bytes(self):
        """Bytes of its files."""
        total = 0
        # It packs its files meanwhile, and what is gone counts no more.
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    total += (Path(folder) / name).stat().st_blocks * 512
        return total

    def settled_bytes(self, seconds):
        """Bytes of its files once they no longer change, or after so long."""
        ends_s = time.monotonic() + seconds
        self.flush()
        before, same = -1, 0
        while same < 4 and time.monotonic() < ends_s:
            time.sleep(1.0)
            now = self.disk_bytes()
            same = same + 1 if now == before else 0
            before = now
        return self.disk_bytes()

    def sink(self, database=DATABASE):
        """The product's own client of it."""
        return build_sink(SinkSettings("v1", self.url, database=database, timeout_s=60.0))


class Influx(Measured, InfluxDB):
    """InfluxDB 1.6.7."""

    name = "InfluxDB 1.6.7"
    program = "influxd"
    short = "influxdb"

    def __init__(self, folder):
        super().__init__(folder)
        text = self._config.read_text()
        self._config.write_text(text.replace("[data]\n", SETTLING, 1))

    def begin(self, *databases):
        """Makes the databases."""
        for database in databases or (DATABASE,):
            self.query(f'CREATE DATABASE "{database}"')

    def flush(self):
        """It packs by itself, soon."""

    def packed_bytes(self, database):
        """Bytes of a database's rows, once they are packed: not of its log or its table of series."""
        return sum(path.stat().st_size for path in (self.folder / "data" / database).rglob("*.tsm"))

    def series(self, database=DATABASE):
        """How many series it counts."""
        found = self.query("SHOW SERIES EXACT CARDINALITY", db=database)
        return sum(row[0] for series in found for row in series["values"])


class Victoria(Measured, VictoriaMetrics):
    """VictoriaMetrics, single node."""

    name = "VictoriaMetrics"
    program = "victoria-metrics"
    short = "victoriametrics"

    def begin(self, *_):
        """It makes what is written to."""

    def flush(self):
        """What it holds in memory goes to its files, as one part."""
        get(f"{self.url}/internal/force_flush")
        get(f"{self.url}/internal/force_merge")

    def series(self):
        """How many series it counts, of a day."""
        status = json.loads(get(f"{self.url}/api/v1/status/tsdb", topN="1", date=self.day))
        return int(status["data"]["totalSeries"])

    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
