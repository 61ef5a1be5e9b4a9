"""The two databases under load, with short compaction delays, and their resource usage."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxV1, InfluxV1Config
from fakes.servers import InfluxDB, VictoriaMetrics, get

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DATABASE = "fleet"
# InfluxDB compacts idle shards after 4 h by default; the delay does not change the compacted size.
SETTLING = """[data]
  cache-snapshot-write-cold-duration = "2s"
  compact-full-write-cold-duration = "4s"
  index-version = "inmem"
  max-series-per-database = 0
  max-values-per-tag = 0
"""
QUERY_TIMEOUT_S = 60.0


class MeasuredServer:
    """Common base of both servers."""

    _process: subprocess.Popen[bytes]
    folder: Path
    url: str

    def flush(self) -> None:
        """Flush memory to files."""
        raise TypeError(f"{type(self).__name__} does not implement flush")

    def usage(self) -> tuple[float, int]:
        """Return (CPU seconds so far, resident bytes now)."""
        pid = self._process.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(row for row in status.splitlines() if row.startswith("VmRSS"))
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S, int(resident.split()[1]) * 1024

    def disk_bytes(self) -> int:
        """Return the size of its files in bytes."""
        total = 0
        # Compaction deletes files meanwhile; deleted ones are not counted.
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    total += (Path(folder) / name).stat().st_blocks * 512
        return total

    def settled_bytes(self, seconds: float) -> int:
        """Return the size of its files once it is stable, or after `seconds`."""
        ends_s = time.monotonic() + seconds
        self.flush()
        before, unchanged = -1, 0
        while unchanged < 4 and time.monotonic() < ends_s:
            time.sleep(1.0)
            now = self.disk_bytes()
            unchanged = unchanged + 1 if now == before else 0
            before = now
        return self.disk_bytes()

    def sink(self) -> InfluxV1:
        """Return the product's own client of it."""
        config = InfluxV1Config.model_validate(
            {"api": "v1", "url": self.url, "database": DATABASE, "timeout": "60s"}
        )
        return InfluxV1(config, SystemClock())


class Influx(MeasuredServer, InfluxDB):
    """InfluxDB 1.6.7."""

    name = "InfluxDB 1.6.7"
    program = "influxd"
    short = "influxdb"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        text = self._config.read_text()
        self._config.write_text(text.replace("[data]\n", SETTLING, 1))

    def begin(self) -> None:
        """Create the database."""
        self.query(f'CREATE DATABASE "{DATABASE}"')

    def flush(self) -> None:
        """Do nothing: InfluxDB compacts after the configured delay."""

    def series(self) -> int:
        """Return the number of series."""
        counts = self.query("SHOW SERIES EXACT CARDINALITY", db=DATABASE)
        return sum(row[0] for series in counts for row in series["values"])


class Victoria(MeasuredServer, VictoriaMetrics):
    """VictoriaMetrics, single node."""

    name = "VictoriaMetrics"
    program = "victoria-metrics"
    short = "victoriametrics"

    def begin(self) -> None:
        """Do nothing: databases need not be created."""

    def flush(self) -> None:
        """Flush memory to files and merge them into one part."""
        get(f"{self.url}/internal/force_flush")
        get(f"{self.url}/internal/force_merge")

    def series(self) -> int:
        """Return the number of series of a day."""
        status = json.loads(get(f"{self.url}/api/v1/status/tsdb", topN="1", date=self.day))
        return int(status["data"]["totalSeries"])

    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
