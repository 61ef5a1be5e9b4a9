"""The history that the tests' Prometheus has, and the shipped rules."""

from pathlib import Path

from costprobe.core.records import NS_PER_S
from fakes import known
from fakes.known import points

END_NS = known.NEWEST_NS
END_S = END_NS // NS_PER_S
SCRAPE_S = known.STEP_S
HISTORY_S = 2 * 3600
RULES = Path(__file__).parents[3] / "agent/costprobe/ui/prometheus/costprobe.rules.yml"


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
