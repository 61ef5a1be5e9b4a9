"""The InfluxQL that sets up an InfluxDB 1.x. Source: its query language reference, 1.x."""

from __future__ import annotations

from costprobe.core.line_protocol import identifier, literal
from costprobe.ui.influx_setup.rollup import HourlySeries

_HOUR_S = 3600


def duration(duration_s: float) -> str:
    """Format a duration in whole seconds; InfluxDB's minimum is an hour."""
    return f"{max(_HOUR_S, round(duration_s))}s"


def create_database(database: str, policy: str, keep_s: float) -> str:
    """Return the statement that creates a database with a default retention policy."""
    return (
        f"CREATE DATABASE {identifier(database)} WITH DURATION {duration(keep_s)}"
        f" REPLICATION 1 NAME {identifier(policy)}"
    )


def create_policy(database: str, policy: str, keep_s: float) -> str:
    """Return the statement that creates another retention policy."""
    return (
        f"CREATE RETENTION POLICY {identifier(policy)} ON {identifier(database)}"
        f" DURATION {duration(keep_s)} REPLICATION 1"
    )


def query_name(rolled: HourlySeries) -> str:
    """Return the name of the continuous query of a series."""
    return f"costprobe_{rolled.name}_hourly"


def create_query(
    rolled: HourlySeries, source: tuple[str, str], target: tuple[str, str], late_s: float
) -> str:
    """Return the statement that creates the continuous query of a series' hourly rows.

    Args:
        rolled: The series.
        source: Database and retention policy that it reads.
        target: Database and retention policy that it writes to.
        late_s: Time for which it recomputes hours for late points, in s.
    """
    fields = ", ".join(
        f"{kind}({identifier(field)}) AS {identifier(field)}"
        for kind, fields in rolled.fields.items()
        for field in fields
    )
    series = identifier(rolled.measurement)
    into = f"{identifier(target[0])}.{identifier(target[1])}.{series}"
    from_ = f"{identifier(source[0])}.{identifier(source[1])}.{series}"
    where = f' WHERE "basis" = {literal(rolled.basis)}' if rolled.basis else ""
    select = f"SELECT {fields} INTO {into} FROM {from_}{where} GROUP BY time(1h), *"  # noqa: S608 - quoted
    head = f"{identifier(query_name(rolled))} ON {identifier(source[0])}"
    late_h = max(1, round(late_s / _HOUR_S))
    return f"CREATE CONTINUOUS QUERY {head} RESAMPLE EVERY 1h FOR {late_h}h BEGIN {select} END"


def is_same(ours: str, shown: str) -> bool:
    """Return whether two statements are equal; the server omits unnecessary quotes."""
    return ours.replace('"', "") == shown.replace('"', "")
