"""The steps of setting up a database: its required parts, and the creation of missing ones.

Hourly aggregation of each numeric field is the same as in the local store; a new secret is written to a file
that only its owner can read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from costprobe.adapters.store.hours import Aggregation, kind_of
from costprobe.core.schema import SCHEMA, SERVING_RATIOS
from costprobe.core.units import format_duration

# Suffix of the database or bucket of hourly rows.
HOURLY = "_hourly"
# Hours of hourly rows that are computed again for late points.
LATE_H = 6
HOUR_S = 3600


class SetupError(Exception):
    """The database cannot be read or changed; the message gives the reason without secrets."""


def at_server(url: str, reason: str) -> str:
    """Return a reason that names the server; that of a failed connection names it already."""
    return reason if reason.startswith(url) else f"{url}: {reason}"


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """Options of the set-up.

    Attributes:
        keep_s: Retention of rows as measured, in s.
        keep_hourly_s: Retention of hourly rows, in s.
    """

    keep_s: float
    keep_hourly_s: float


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One required part of a database.

    Attributes:
        what: Its description: "bucket costprobe, kept for 30d".
        create: Creates it; None if it exists.
        note: A remark on it; empty if there is none.
    """

    what: str
    create: Callable[[], object] | None = None
    note: str = ""


def retention_text(duration_s: float) -> str:
    """Format a retention; 0 means indefinitely."""
    return f"kept for {format_duration(duration_s)}" if duration_s else "kept indefinitely"


OWNER_ONLY = 0o600


def write_new_secret(path: Path, create: Callable[[], str]) -> None:
    """Write a secret to a new file.

    The file is created first, so that no secret is created that cannot be stored.

    Args:
        path: The file.
        create: Creates the secret.

    Raises:
        SetupError: The file exists or cannot be written, or `create` failed.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except OSError as error:
        raise SetupError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that exists and is"
            " yours with --secret-file, and in the [[sink]]"
        ) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            # Independent of the umask.
            os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(create() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise SetupError(f"{path}: cannot be written ({error.strerror})") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class HourlySeries(NamedTuple):
    """Series that are aggregated alike.

    Attributes:
        name: Unique name.
        measurement: Name of the series family.
        basis: Tag `basis` of the series; empty for all.
    """

    name: str
    measurement: str
    basis: str = ""

    @property
    def fields(self) -> dict[Aggregation, list[str]]:
        """The numeric fields by their aggregation: sum, mean, median, max, last.

        Ratios of production are left out: they are divided from the sums of an hour.
        """
        fields: dict[Aggregation, list[str]] = {}
        for name, kind in SCHEMA[self.measurement].fields.items():
            if kind in (int, float) and not (self.basis == "serving" and name in SERVING_RATIOS):
                how = kind_of(self.measurement, name, kind(0))
                fields.setdefault(how, []).append(name)
        return fields


# Series that change rarely are not aggregated.
ROLLED: Final = (
    HourlySeries("device", "device"),
    HourlySeries("probe", "probe"),
    HourlySeries("software", "software"),
    HourlySeries("cost", "cost", "probe"),
    HourlySeries("cost_serving", "cost", "serving"),
    HourlySeries("serving", "serving"),
    HourlySeries("allocation", "allocation"),
    HourlySeries("tenant", "tenant"),
    HourlySeries("slo", "slo"),
    HourlySeries("agent", "agent"),
)
