"""One history of what is measured, over changes of its price plan and of its labels.

A row of another plan or label belongs to another stored series, but to the same model on the same
device: drawn as two series, a change of plan would look like an end and a beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from costprobe.adapters.storage.history import SeriesValues
from costprobe.core.schema import OWN_TAGS

# Tags of costprobe that identify what is measured; others may change while it stays the same.
_IDENTITY = OWN_TAGS - {"plan"}

Identity = tuple[tuple[str, str], ...]


class TagChange(NamedTuple):
    """A change of a plan or label.

    Attributes:
        time_ns: UTC ns of the first row with the new value.
        tag: The tag.
        before: Value before; empty for none.
        after: Value since; empty for none.
    """

    time_ns: int
    tag: str
    before: str
    after: str


class ContinuedSeries(NamedTuple):
    """The values of one thing.

    Attributes:
        series: Its values; the tags are the newest.
        changes: Changes of its plan and labels, oldest first.
    """

    series: SeriesValues
    changes: list[TagChange]


def identity_of(tags: Mapping[str, str]) -> Identity:
    """Return the tags that identify what a row is of, without its plan and labels."""
    return tuple(sorted((name, tags[name]) for name in tags.keys() & _IDENTITY))


def continued_series(all_series: Iterable[SeriesValues]) -> list[ContinuedSeries]:
    """Join the series that differ only in plan or labels and follow each other in time.

    Series whose rows alternate, such as two teams' shares of one device, stay separate.

    Args:
        all_series: Series of one field, each with at least one value.
    """
    by_identity: dict[Identity, list[SeriesValues]] = {}
    for series in all_series:
        by_identity.setdefault(identity_of(series.tags), []).append(series)
    return [found for parts in by_identity.values() for found in _joined(parts)]


def _joined(parts: Sequence[SeriesValues]) -> list[ContinuedSeries]:
    if len(parts) == 1:
        return [ContinuedSeries(parts[0], [])]
    rows = sorted(
        (time_ns, number, value, end)
        for number, part in enumerate(parts)
        for time_ns, value, end in zip(part.times_ns, part.values, part.ends, strict=True)
    )
    steps = [(a[1], b[1], b[0]) for a, b in pairwise(rows) if a[1] != b[1]]
    is_simultaneous = any(a[0] == b[0] for a, b in pairwise(rows))
    if is_simultaneous or len(steps) > max(len(parts) - 1, len(rows) // 4):
        return [ContinuedSeries(part, []) for part in parts]
    newest = parts[rows[-1][1]]
    whole = SeriesValues(newest.tags, [], [], is_sampled=any(part.is_sampled for part in parts))
    for time_ns, _, value, end in rows:
        whole.add(time_ns, value, end)
    changes = [
        change
        for before, after, time_ns in steps
        for change in _changes(parts[before].tags, parts[after].tags, time_ns)
    ]
    return [ContinuedSeries(whole, changes)]


def _changes(before: Mapping[str, str], after: Mapping[str, str], time_ns: int) -> list[TagChange]:
    return [
        TagChange(time_ns, tag, before.get(tag, ""), after.get(tag, ""))
        for tag in sorted(before.keys() | after.keys())
        if before.get(tag) != after.get(tag)
    ]
