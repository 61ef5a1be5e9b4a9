"""The kinds of database of a fleet, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from costprobe.adapters.fleet.influxql import InfluxQl
from costprobe.adapters.fleet.promql import VictoriaMetrics
from costprobe.adapters.fleet.reader import FleetReader
from costprobe.adapters.fleet.scraped import Scraped
from costprobe.adapters.fleet.settings import FleetConfig
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
