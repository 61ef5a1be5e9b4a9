"""The section [store]."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from costprobe.core.config.fields import Duration, Section, key


class StoreConfig(Section):
    """The local SQLite store: where it is, and how long it keeps each resolution.

    Rows are kept as measured for `retention`, then as one row a minute, then as one row an hour. Rows of
    `probe`, `cost`, `serving` and `allocation` are less frequent: they are kept as measured for as long
    as the rows of a minute. Events, alerts, sweeps and cold starts are kept as long as the rows of an
    hour. Rows that a sink has not yet received are kept longer if necessary, up to `outbox_retention`.
    """

    path: Path | None = Field(
        None,
        description="The store's file; by default /var/lib/costprobe/costprobe.db.",
        examples=["/var/lib/costprobe/costprobe.db"],
    )
    retention_s: Duration = key(
        "retention", 7 * 86400.0, description="How long rows are kept as measured.", examples=["7d"]
    )
    rollup_1m_retention_s: Duration = key(
        "rollup_1m_retention",
        30 * 86400.0,
        description="Age up to which one row a minute is kept.",
        examples=["30d"],
    )
    rollup_1h_retention_s: Duration = key(
        "rollup_1h_retention",
        1095 * 86400.0,
        description="Age up to which one row an hour is kept.",
        examples=["1095d"],
    )
    outbox_retention_s: Duration = key(
        "outbox_retention", 180 * 86400.0, description="Longest time that a row waits for a sink."
    )
