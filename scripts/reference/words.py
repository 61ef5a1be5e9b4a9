"""The words of keys, fields and tags, from words.toml, where each stands once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_name("words.toml")


_SUMMARY = {"value", "iqr", "low", "high", "forecast", "forecast_low", "forecast_high"}


class Words:
    """The file of words.

    Attributes:
        documents: Description of each JSON document, and of each of its alternatives.
        measurements: Description of each measurement of the series.
        counts: Keys of numbers without a unit.
    """

    def __init__(self) -> None:
        """Read the file."""
        tables = tomllib.loads(_SOURCE.read_text(encoding="utf-8"))
        self.documents: Mapping[str, str] = tables["documents"]
        self.measurements: Mapping[str, str] = tables["measurements"]
        self.counts = frozenset[str](tables["counts"])
        self._meanings: Mapping[str, str] = tables["words"]
        self._units: Mapping[str, str] = tables["units"]
        self._used = set[str]()

    def of(self, path: Sequence[str]) -> str:
        """Return the meaning of the last key of a path, by the longest end of it; empty without one."""
        found = next((end for end in _ends(path) if end in self._meanings), "")
        self._used.add(found)
        return self._meanings.get(found, "")

    def unit_of(self, path: Sequence[str], schema: Mapping[str, Any]) -> str:
        """Return the unit of a key by its schema; empty for none.

        The value of a table, and its range, have the unit of the table.
        """
        kinds = schema.get("type", ())
        if "enum" in schema or not any(one in kinds for one in ("number", "integer", "string")):
            return ""
        places = (path, path[:-1]) if path[-1] in _SUMMARY else (path,)
        return next(filter(None, map(self._unit, places)), "")

    @property
    def patterns(self) -> Mapping[str, str]:
        """Units by the part of a key that states them, such as ``*_ms``."""
        return {
            key: unit for key, unit in self._units.items() if unit and "*" in key and "." not in key
        }

    def ends_of(self, name: str) -> dict[str, list[str]]:
        """Return where each meaning of a key holds, by the meaning: ends of paths; none for elsewhere."""
        found: dict[str, list[str]] = {self._meanings.get(name, ""): []}
        for path, text in self._meanings.items():
            end, _, key = path.rpartition(".")
            if end and key == name:
                found.setdefault(text, []).append(end)
        return found

    def _unit(self, path: Sequence[str]) -> str:
        for pattern, unit in self._units.items():
            end = ".".join(path[-1 - pattern.count(".") :])
            if fnmatchcase(end, pattern):
                return unit
        return ""

    def unused(self) -> list[str]:
        """Return words that nothing has asked for."""
        return sorted(self._meanings.keys() - self._used)


def _ends(path: Sequence[str]) -> Iterator[str]:
    return (".".join(path[start:]) for start in range(len(path)))
