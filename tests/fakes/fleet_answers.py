"""Answers to questions about a fleet, computed over rows in memory: what its databases must answer."""

import bisect
import dataclasses
import math
import statistics
from collections import defaultdict
from operator import attrgetter

from costprobe.adapters.databases.question import FleetAnswer, GroupValue
from costprobe.adapters.http.errors import RetryLater
from costprobe.core.records import NS_PER_S

time_of = attrgetter("time_ns")
OVER_TIME = {
    "sum": math.fsum,
    "count": len,
    "mean": statistics.fmean,
    "share": statistics.fmean,
    "median": statistics.median,
    "max": max,
}


def answered(question, rows, start_s, end_s):
    """The answer by group and end of the interval, UTC in ns."""
    if question.over_time == "weighted":
        rows = [row for row in rows if question.weight in row.fields]
        return {
            ((*group, part), time_ns): value
            for part, one in (
                ("weighted", question),
                ("paired", dataclasses.replace(question, over_time="sum")),
            )
            for (group, time_ns), value in summed(one, rows, start_s, end_s).items()
        }
    return summed(question, rows, start_s, end_s)


def summed(question, rows, start_s, end_s):
    series = defaultdict(lambda: defaultdict(list))
    names = (*question.identity, *question.where)
    for row in rows:
        time_s = row.time_ns // NS_PER_S
        if row.measurement != question.measurement or question.field not in row.fields:
            continue
        tags = {tag: row.tags.get(tag, "") for tag in names}
        if (
            start_s < time_s <= end_s
            and (not question.hosts or row.tags["host"] in question.hosts)
            and all(tags[tag] == value for tag, value in question.where.items())
            and all(row.tags.get(tag) for tag in question.present)
        ):
            every_s = question.every_s or end_s - start_s
            until_s = start_s - (start_s - time_s) // every_s * every_s
            group = tuple(tags[tag] for tag in question.by)
            identity = tuple(tags[tag] for tag in names[: -len(question.where) or None])
            series[group, until_s * NS_PER_S][identity].append(row)
    return {
        group: OVER_TIME[question.across](
            [over_time(question, found) for found in by_identity.values()]
        )
        for group, by_identity in series.items()
    }


def over_time(question, rows):
    times_s = [row.time_ns // NS_PER_S for row in rows]
    if question.over_time == "newest":
        return max(times_s)
    if question.over_time == "covered":
        return len({-(-time_s // question.bucket_s) for time_s in times_s})
    values = [row.fields[question.field] for row in rows]
    if question.over_time == "weighted":
        weights = [row.fields[question.weight] for row in rows]
        return math.fsum(values) * statistics.fmean(weights)
    return OVER_TIME[question.over_time](values)


class RowsReader:
    """A reader of a fleet whose database is a list of rows.

    `error` makes it fail, `problems` makes its answers partial; `asked` counts the questions.
    """

    def __init__(self, rows):
        self.by_measurement = defaultdict(list)
        for row in sorted(rows, key=time_of):
            self.by_measurement[row.measurement].append(row)
        self.error, self.problems, self.asked = "", (), 0

    def ask(self, question, start_ns, end_ns, now_ns):  # noqa: ARG002 - a reader's arguments
        self.asked += 1
        if self.error:
            raise RetryLater(self.error)
        rows = self.by_measurement[question.measurement]
        first, last = (bisect.bisect_right(rows, end, key=time_of) for end in (start_ns, end_ns))
        rows = rows[first:last]
        found = answered(question, rows, start_ns // NS_PER_S, end_ns // NS_PER_S)
        return FleetAnswer(
            tuple(GroupValue(group, value, time_ns) for (group, time_ns), value in found.items()),
            self.problems,
        )

    def close(self):
        """Nothing is open: the same reader is asked again."""
