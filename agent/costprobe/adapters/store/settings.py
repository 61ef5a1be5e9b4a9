"""The section [store]."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from costprobe.core.config.fields import Duration, Section, key


class StoreConfig(Section):
    """The local SQLite store: where it is, and how long a row waits for a sink.

    Rows are kept as measured for 7 days, the less frequent ones of `probe`, `cost`, `serving` and
    `allocation` for 90 days, then as one row an hour for three years. Events, alerts, sweeps and cold
    starts are kept for three years. Rows that a sink has not yet received are kept longer if necessary,
    up to `outbox_retention`.
    """

    removed: ClassVar = {
        "retention": "rows are kept as measured for 7 days; of probes, costs, services and shares for 90",
        "rollup_1m_retention": "rows as measured become one row an hour",
        "rollup_1h_retention": "rows of an hour are kept for three years",
    }

    path: Path | None = Field(
        None,
        description="The store's file; by default /var/lib/costprobe/costprobe.db.",
        examples=["/var/lib/costprobe/costprobe.db"],
    )
    outbox_retention_s: Duration = key(
        "outbox_retention", 180 * 86400.0, description="Longest time that a row waits for a sink."
    )
