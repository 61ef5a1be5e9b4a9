"""The InfluxQL that sets up an InfluxDB 1.x. Source: its query language reference, 1.x."""

from __future__ import annotations

from agent.influx_setup.rollup import rolled_fields

_HOUR_S = 3600


def name(text: str) -> str:
    """An identifier, quoted."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def string(text: str) -> str:
    """A string, quoted."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def duration(duration_s: float) -> str:
    """A duration in whole seconds; InfluxDB keeps shards for at least an hour."""
    return f"{max(_HOUR_S, round(duration_s))}s"


def create_database(database: str, policy: str, keep_s: float) -> str:
    """Makes a database whose default retention policy keeps rows that long."""
    return (
        f"CREATE DATABASE {name(database)} WITH DURATION {duration(keep_s)}"
        f" REPLICATION 1 NAME {name(policy)}"
    )


def create_policy(database: str, policy: str, keep_s: float) -> str:
    """Makes a further retention policy."""
    return (
        f"CREATE RETENTION POLICY {name(policy)} ON {name(database)}"
        f" DURATION {duration(keep_s)} REPLICATION 1"
    )


def query_name(measurement: str) -> str:
    """What the continuous query of a series is called."""
    return f"infercost_{measurement}_hourly"


def create_query(
    measurement: str, source: tuple[str, str], target: tuple[str, str], late_s: float
) -> str:
    """Makes the continuous query that rolls a series up to an hour.

    Args:
        measurement: Name of the series.
        source: Database and retention policy that it reads.
        target: Those that it writes to.
        late_s: How far back it looks for points that came late.
    """
    fields = ", ".join(
        f"{kind}({name(field)}) AS {name(field)}"
        for kind, fields in rolled_fields(measurement).items()
        for field in fields
    )
    series = name(measurement)
    into = f"{name(target[0])}.{name(target[1])}.{series}"
    from_ = f"{name(source[0])}.{name(source[1])}.{series}"
    rolled = ["SELECT", fields, "INTO", into, "FROM", from_, "GROUP BY time(1h), *"]
    called = f"{name(query_name(measurement))} ON {name(source[0])}"
    late_h = max(1, round(late_s / _HOUR_S))
    return (
        f"CREATE CONTINUOUS QUERY {called} RESAMPLE EVERY 1h FOR {late_h}h"
        f" BEGIN {' '.join(rolled)} END"
    )


def is_same(made: str, told: str) -> bool:
    """Whether a statement is what the database tells of it, which quotes only where it must."""
    return made.replace('"', "") == told.replace('"', "")
