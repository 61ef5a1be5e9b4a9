"""The kinds of database of a fleet, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from costprobe.adapters.databases.influxql import InfluxQl
from costprobe.adapters.databases.promql import Scraped, VictoriaMetrics
from costprobe.adapters.databases.question import FleetConfig
from costprobe.adapters.databases.reader import FleetReader
from costprobe.core.clock import Clock

# By `kind`.
READERS: Final[Mapping[str, Callable[[FleetConfig, Clock], FleetReader]]] = {
    "influxql": InfluxQl,
    "victoriametrics": VictoriaMetrics,
    "prometheus": Scraped,
}


def fleet_reader(config: FleetConfig, clock: Clock) -> FleetReader:
    """Return the reader of a fleet's database; nothing is connected yet."""
    return READERS[config.kind](config, clock)
