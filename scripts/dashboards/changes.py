"""Panels of the changes that last, and of the incidents that are firing."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table

from scripts.dashboards.queries import Query
from scripts.dashboards.tables import listing, sorted_by

_HERE = '"host" =~ /^$host$/'
# As `ui/host_overview.py` has them: drifts of cost of the last week that have not reverted.
_KNOWN = "7d"
_REVERTED_PCT = 0.5
_COST = "cost|serving_time|serving_energy|demand|mix"
_SERIES = ("host", "device", "probe", "service", "served_model", "metric")
# An incident may fire for long, and has rows only when its state changes.
_FIRED = "30d"
_PLACES = ("host", "rule", "device", "probe", "service", "served_model", "budget")


def lasting(span: int) -> table.Panel:
    """Return the table of changes of cost that last, the largest first."""
    by = ", ".join(f'"{tag}"' for tag in _SERIES)
    inner = (
        'SELECT last("level_pct") AS "change", "title", "cause", "cost_per_month" FROM "event"'  # noqa: S608 - constant text of this repository
        f' WHERE {_HERE} AND "kind" = \'drift\' AND "metric" =~ /^({_COST})$/'
        f" AND time > now() - {_KNOWN} GROUP BY {by}"
    )
    text = (
        'SELECT abs("change") AS "size", "change", "title", "cause", "cost_per_month", "host"'  # noqa: S608 - as above
        f' FROM ({inner}) WHERE "change" >= {_REVERTED_PCT} OR "change" <= -{_REVERTED_PCT}'
    )
    events = f'{{host=~"$host",kind="drift",metric=~"{_COST}"}}[{_KNOWN}]'
    series = ", ".join(_SERIES)
    rows = f"{series}, title, cause"

    def newest(field: str) -> str:
        """Return a field of the newest event of each series."""
        times = f"last_over_time(costprobe_event_time_s{events})"
        last = (
            f"max by ({rows}) ({times}) == on ({series}) group_left () max by ({series}) ({times})"
        )
        return f"max by ({rows}) (last_over_time(costprobe_event_{field}{events})) and ({last})"

    level = newest("level_pct")
    is_lasting = f"and (abs({level}) >= {_REVERTED_PCT})"
    columns = {
        "size": f"abs({level}) >= {_REVERTED_PCT}",
        "change": f"{level} {is_lasting}",
        "cost_per_month": f"{newest('cost_per_month')} {is_lasting}",
    }
    panel = listing(
        "Changes of cost that last, the largest first",
        Query.written(text, columns),
        units={"change": "percent", "size": "percent"},
        about="Drifts of the last 7 days that have not reverted, against the level before, with their causes.",
        span=span,
        height=6,
    )
    return sorted_by(panel, "size")


def firing(span: int) -> table.Panel:
    """Return the table of firing incidents."""
    columns = '"severity", "host", "rule", "summary", "cause"'
    return listing(
        "Firing",
        Query.written(
            f"SELECT {columns} FROM ({_newest_states()}) WHERE \"state\" = 'firing'",  # noqa: S608 - as above
            {
                "firing": 'max by (host, rule, severity, cause, device) (costprobe_alert_firing{host=~"$host"})'
            },
        ),
        about="Incidents whose newest row of the last 30 days is `firing`, from any time range.",
        span=span,
        height=6,
    )


def firing_count() -> Query:
    """Return the query of the number of firing incidents."""
    text = f'SELECT count("summary") FROM ({_newest_states()}) WHERE "state" = \'firing\''  # noqa: S608 - as above
    return Query.written(text, {"": 'count(costprobe_alert_firing{host=~"$host"}) or vector(0)'})


def _newest_states() -> str:
    by = ", ".join(f'"{tag}"' for tag in _PLACES)
    return (
        'SELECT last("summary") AS "summary", "severity", "cause", "state" FROM "alert"'  # noqa: S608 - as above
        f" WHERE {_HERE} AND time > now() - {_FIRED} GROUP BY {by}"
    )
