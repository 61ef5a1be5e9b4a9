"""Some cells of aggregated rows: SQLite extracts them, and only these are decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from costprobe.adapters.storage.rollup.aggregation import OTHER_LAYOUT
from costprobe.core.bounded import bounded_json_list


class WantedCells:
    """Reads the cells of some fields.

    Args:
        fields: Names of the fields.
        layouts: Field names of the present layouts, by their number.
        names_of: Returns the field names of a layout, also of one that was created since.
    """

    def __init__(
        self,
        fields: frozenset[str],
        layouts: Mapping[int, Sequence[str]],
        names_of: Callable[[int], Sequence[str]],
    ) -> None:
        self._names_of = names_of
        self._wanted: dict[int, list[str]] = {}
        cases = []
        for number, names in layouts.items():
            at = [index for index, name in enumerate(names) if name in fields]
            if at:
                # Of one path SQLite returns the value, whose digits it would round, instead of its text.
                at = at * 2 if len(at) == 1 else at
                self._wanted[number] = [names[index] for index in at]
                paths = ", ".join(f"'$[{index}]'" for index in at)
                cases.append(f"WHEN {number} THEN json_extract(cells, {paths})")
        self.sql = f"CASE layout_id {' '.join(cases)} ELSE cells END" if cases else "cells"

    def decoded(
        self, layout_id: int, texts: Sequence[str]
    ) -> tuple[Sequence[str], list[Sequence[Any]]]:
        """Return the names of the cells that rows of a layout have, and these cells of each row.

        Args:
            layout_id: The layout of the rows.
            texts: What `sql` returned for each.

        Raises:
            ValueError: A row is malformed.
        """
        names = self._wanted.get(layout_id) or self._names_of(layout_id)
        rows = bounded_json_list(texts)
        if any(len(cells) != len(names) for cells in rows):
            raise ValueError(OTHER_LAYOUT)
        return names, rows
