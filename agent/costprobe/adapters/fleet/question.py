"""A question to the database of a fleet, and its answer.

A question is one number per group of series; the database aggregates the rows, and only the groups come
back. It is aggregated twice: over time, within each series, then across the series of a group:

    # What each host cost, by currency.
    Question("device", "cost", "sum", by=("host", "currency"))
    # Median latency of each probe on each GPU.
    Question("probe", "latency_p50_ms", "median", "median", by=("host", "device", "probe", "batch"))
    # Number of devices by GPU model.
    Question("device", "cost", "count", "count", by=("model",))
    # Cost of each service per day.
    Question("allocation", "cost", "sum", by=("service", "currency"), every_s=86_400)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from costprobe.adapters.system.outside_text import outside_text
from costprobe.core.schema import SCHEMA

OverTime = Literal[
    "sum", "count", "mean", "median", "max", "share", "newest", "weighted", "covered"
]
WEIGHTED: Final = "weighted"
PAIRED: Final = "paired"
Across = Literal["sum", "count", "mean", "median", "max"]
# Tags that distinguish what is measured; the others describe it, and may change.
_IDENTITY: Final = ("device", "probe", "service", "served_model", "tenant", "part", "batch")


@dataclass(frozen=True, slots=True)
class Question:
    """One number per group of series.

    Attributes:
        measurement: Series family, as in `core.schema`.
        field: Its numeric field; of `count` any field.
        over_time: Aggregation within a series. `sum`, `mean`, `median`, `max` of the values; `count`
            of the rows; `share`: the share of rows in which a field that is true or false is true;
            `newest`: UTC in s of the newest row; `covered`: number of buckets of
            `bucket_s` with a row; `weighted`: two numbers of the series that have `weight`, distinguished by
            a further tag: `weighted`, the sum times the mean of `weight`, and `paired`, the sum.
        across: Aggregation across the series of a group. A series is a host with the tags of what is
            measured: device, probe, service, model, tenant, part, batch.
        by: Tags and labels of the groups; an absent tag is the empty text.
        where: Tags and their values; the empty text for rows without the tag.
        present: Tags that rows must have.
        hosts: Only rows of these hosts; empty for all.
        weight: Field of the same rows, never negative, for `weighted`.
        bucket_s: Length of a bucket for `covered`, in s; spans must be multiples of it.
        every_s: FleetAnswer for each interval of this length, in s; 0 for one of the whole span.
    """

    measurement: str
    field: str
    over_time: OverTime
    across: Across = "sum"
    by: tuple[str, ...] = ()
    where: Mapping[str, str] = dataclasses.field(default_factory=dict)
    present: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    weight: str = ""
    bucket_s: int = 3600
    every_s: int = 0

    @property
    def is_additive(self) -> bool:
        """Whether the answers of parts of a span add up to that of the span."""
        return self.across == "sum" and self.over_time in (
            "sum",
            "count",
            "weighted",
            "covered",
        )

    @property
    def is_divisible(self) -> bool:
        """Whether the answers of parts of a span give that of the span: by their sum, or their largest."""
        is_largest = self.across == "max" and self.over_time == "max"
        return self.is_additive or is_largest or self.over_time == "newest"

    @property
    def identity(self) -> tuple[str, ...]:
        """The tags of a series, the group's included."""
        tags = SCHEMA[self.measurement].tags
        own = ("host", *(tag for tag in _IDENTITY if tag in tags))
        return (*own, *(tag for tag in self.by if tag not in own))


class GroupValue(NamedTuple):
    """The answer for one group.

    Attributes:
        tags: Values of `Question.by`, in its order; of `weighted` with a further one.
        value: The number; never NaN.
        time_ns: End of the interval of `every_s`, UTC in ns; that of the span without intervals.
    """

    tags: tuple[str, ...]
    value: float
    time_ns: int


# Beyond every sum of measurements, far below where sums of floats overflow.
LARGEST: Final = 1e24
# Most remarks of a database in an answer, and their longest length.
_REMARKS_MAX: Final = 3
_REMARK_CHARS_MAX: Final = 200


def group_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags of an answer; half a character of UTF-16, which no file takes, is replaced.

    Raises:
        TypeError: One is no text.
    """
    if "".join(texts).isascii():
        return texts
    return tuple([text.encode(errors="replace").decode() for text in texts])


def remarks(texts: Iterable[object]) -> list[str]:
    """Return what a database says about its answer."""
    return [
        f"the database says: {outside_text(str(text), _REMARK_CHARS_MAX)}"
        for text in islice(texts, _REMARKS_MAX)
    ]


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The answer of a database.

    Attributes:
        rows: The groups; of unknown order.
        problems: Why the answer is partial, one sentence each, printable; empty if it is complete.
    """

    rows: tuple[GroupValue, ...]
    problems: tuple[str, ...] = ()
