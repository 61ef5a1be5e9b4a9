"""The history that the tests' Prometheus has, and the shipped rules."""

from functools import cache
from pathlib import Path

from costprobe.core.records import NS_PER_S
from fakes import day

END_NS = 1_780_012_800 * NS_PER_S
END_S = END_NS // NS_PER_S
SCRAPE_S = day.STEP_S
HISTORY_S = 3 * 3600
RULES = Path(__file__).parents[2] / "agent/costprobe/ui/prometheus/costprobe.rules.yml"


@cache
def points():
    """The rows of the history."""
    return day.points(END_NS, span_s=HISTORY_S)


def rows(measurement, since_s):
    """The rows of the last seconds."""
    return [
        point
        for point in points()
        if point.measurement == measurement and END_NS - since_s * NS_PER_S < point.time_ns
    ]


def sum_of(measurement, field, since_s, **tags):
    """The sum of a field over the rows of the last seconds."""
    return sum(
        point.fields.get(field, 0.0)
        for point in rows(measurement, since_s)
        if tags.items() <= point.tags.items()
    )
