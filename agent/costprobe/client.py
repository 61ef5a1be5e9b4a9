"""The series as tables for notebooks and scripts: pandas or Arrow, one call each.

    from costprobe.client import open_store

    with open_store() as store:
        frame = store.pandas("cost", since="7d", tags={"probe": "ranker"})

Tags and fields are columns, times are UTC. `period_s` is 0 for a row as it was measured, and the
length of its period for one that was rolled up. The libraries, pandas and pyarrow, are optional.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from costprobe.adapters.store.read import RolledPoint, StoreReader
from costprobe.core.config.location import config_path, store_of
from costprobe.core.periods import moment_ns, parse_moment_ns
from costprobe.core.records import Point
from costprobe.core.schema import SCHEMA

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ALWAYS_NS: Final = 0
_DTYPES: Final = {float: "float64", int: "Int64", str: "string", bool: "boolean"}

When = str | int | datetime


class OpenStore:
    """A store opened for reading, also while the daemon writes to it; close it when done.

    Args:
        reader: The store.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def measurements(self) -> list[str]:
        """Names of the series families that have rows or had some."""
        return sorted({series.measurement for series in self._reader.series()})

    def pandas(
        self,
        measurement: str,
        *,
        since: When = ALWAYS_NS,
        until: When | None = None,
        tags: Mapping[str, str] | None = None,
        fields: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Rows of a measurement as a frame of pandas, in the order of their times.

        Args:
            measurement: Such as "cost"; `measurements()` lists them.
            since: A duration before now ("24h"), ISO 8601, a datetime with its zone, or UTC ns.
            until: As above; now by default. A range holds its beginning and not its end.
            tags: That rows must have.
            fields: Only these fields; all that there are by default.

        Raises:
            KeyError: There is no such measurement or field.
            ValueError: A time cannot be read.
            StoreError: The store cannot be read.
        """
        import pandas as pd  # noqa: PLC0415 - an extra, for those who ask for it

        columns, kinds = self._columns(measurement, since, until, tags, fields)
        frame = pd.DataFrame(
            {
                name: pd.Series(values, dtype=_DTYPES[kinds[name]])
                for name, values in columns.items()
                if name != "time"
            }
        )
        frame.insert(0, "time", pd.to_datetime(columns["time"], unit="ns", utc=True))
        return frame

    def arrow(
        self,
        measurement: str,
        *,
        since: When = ALWAYS_NS,
        until: When | None = None,
        tags: Mapping[str, str] | None = None,
        fields: Sequence[str] | None = None,
    ) -> pa.Table:
        """The same as a table of Arrow; arguments and errors as those of `pandas`."""
        import pyarrow as pa  # noqa: PLC0415 - an extra, for those who ask for it

        types = {float: pa.float64(), int: pa.int64(), str: pa.string(), bool: pa.bool_()}
        columns, kinds = self._columns(measurement, since, until, tags, fields)
        return pa.table(
            {
                name: pa.array(
                    values, pa.timestamp("ns", "UTC") if name == "time" else types[kinds[name]]
                )
                for name, values in columns.items()
            }
        )

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def _columns(
        self,
        measurement: str,
        since: When,
        until: When | None,
        tags: Mapping[str, str] | None,
        fields: Sequence[str] | None,
    ) -> tuple[dict[str, list[Any]], dict[str, type]]:
        schema = SCHEMA[measurement].fields
        kinds: dict[str, type] = {}
        now_ns = time.time_ns()
        rows: list[Point] = list(
            self._reader.points(
                measurement,
                _time_ns(since, now_ns),
                now_ns if until is None else _time_ns(until, now_ns),
                tags,
            )
        )
        tag_names = sorted({name for row in rows for name in row.tags})
        present = {name for row in rows for name in row.fields}
        selected = [name for name in schema if name in present] if fields is None else list(fields)
        columns: dict[str, list[Any]] = {"time": [row.time_ns for row in rows]}
        for name in tag_names:
            kinds[name], columns[name] = str, [row.tags.get(name) for row in rows]
        for name in selected:
            kinds[name] = schema[name]
            columns[name] = [row.fields.get(name) for row in rows]
        kinds["period_s"] = int
        columns["period_s"] = [row.period_s if isinstance(row, RolledPoint) else 0 for row in rows]
        return columns, kinds


def open_store(path: str | os.PathLike[str] | None = None) -> OpenStore:
    """Opens a store for reading.

    Args:
        path: The file; by default that of this host's configuration, else that of demo mode.

    Raises:
        StoreError: There is none, this user may not read it, or it is not this version's.
        ValueError: The configuration file cannot be read.
    """
    if path is not None:
        return OpenStore(StoreReader.open(Path(path)))
    config_file = config_path(os.environ.get("COSTPROBE_CONFIG"))
    try:
        return OpenStore(StoreReader.open(store_of(config_file)))
    except (OSError, ValueError) as error:
        raise ValueError(f"{config_file}: {error}; run `costprobe config check`") from error


def _time_ns(when: When, now_ns: int) -> int:
    if isinstance(when, int):
        return when
    return parse_moment_ns(when, now_ns) if isinstance(when, str) else moment_ns(when)
