"""The engine that exposes a page of metrics, by the names of its counters."""

from __future__ import annotations

from costprobe.adapters.serving.engines import ENGINES
from costprobe.adapters.serving.errors import ScrapeError
from costprobe.adapters.serving.exposition import parse_exposition
from costprobe.adapters.serving.reading import read_counters, wanted_names


def engine_of_page(body: bytes) -> str | None:
    """Return the name of the engine whose counters a page has.

    Args:
        body: A page in the Prometheus text format.

    Returns:
        The engine most of whose measures are there, and all of the required ones; else the first
        whose prefix is; else None.
    """
    best, most = None, 0
    by_prefix = None
    for name, engine in ENGINES.items():
        try:
            exposition = parse_exposition(body, wanted_names(engine), engine.prefix)
            reading = read_counters(exposition, engine)
        except ScrapeError:
            continue
        if len(reading.measures) > most and not reading.missing:
            best, most = name, len(reading.measures)
        if by_prefix is None and engine.prefix and exposition.names:
            by_prefix = name
    return best or by_prefix
