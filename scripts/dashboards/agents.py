"""Which agents write rows: whatever the dashboard's time range, a dead one shows within two minutes."""

from __future__ import annotations

from costprobe.ui.grafana.provisioning import (
    KNOWN,
    SILENT_S,
    seen,
    silent,
)

from scripts.dashboards.queries import Query

_HERE = '"host" =~ /^$host$/'
_METRIC = 'costprobe_agent_rss_bytes{host=~"$host"}'
# Time of the newest sample; of one that is no longer scraped, at the step of the subquery before its end.
_SEEN = f"(timestamp({_METRIC}) or max_over_time(timestamp({_METRIC})[{KNOWN}:5m]))"
# Of the version that ran last.
_NEWEST = f"(max by (host, version) {_SEEN} == on (host) group_left () max by (host) {_SEEN})"
_REPORTING = f"(count(max by (host) (timestamp({_METRIC})) > time() - {SILENT_S}) or vector(0))"
_KNOWN = f"count(max by (host) (last_over_time({_METRIC}[{KNOWN}])))"

# Columns of the table of agents: those of /metrics by their names.
_FIELDS = {
    "memory": "rss_bytes",
    "delivery lag": "outbox_lag_s",
    "queued": "outbox_points",
    "dropped": "dropped_points",
    "restarts": "child_restarts",
}


def reporting() -> Query:
    """Return the query of the number of agents that wrote a row in the last two minutes."""
    inner = seen("seen", f"{SILENT_S}s", _HERE)
    text = f'SELECT count("seen") FROM ({inner})'  # noqa: S608 - constant text of this repository
    return Query.written(text, {"": _REPORTING})


def silent_agents() -> Query:
    """Return the query of the number of known agents that did not."""
    return Query.written(silent(_HERE), {"": f"{_KNOWN} - {_REPORTING}"})


def longest_silence() -> Query:
    """Return the query of the time of the oldest of the agents' last rows, in Prometheus in ms."""
    text = f'SELECT first("seen") FROM ({seen("seen", KNOWN, _HERE)})'  # noqa: S608 - as above
    return Query.written(text, {"": f"1000 * min(max by (host) {_SEEN})"})


def worst(field: str, outer: str = "max") -> Query:
    """Return the query of a field's newest values over the agents that report."""
    inner = seen("seen", f"{SILENT_S}s", _HERE).replace("rss_bytes", field)
    counter = "_total" if field in {"dropped_points", "child_restarts"} else ""
    metric = _METRIC.replace("rss_bytes", f"{field}{counter}")
    text = f'SELECT {outer}("seen") FROM ({inner})'  # noqa: S608 - as above
    return Query.written(text, {"": f"{outer}({metric})"})


def states() -> Query:
    """Return the query of the last row of each agent."""
    rows = ", ".join(f'"{field}" AS "{name}"' for name, field in _FIELDS.items())
    others = rows.partition(", ")[2]
    last = seen("memory", KNOWN, _HERE).replace(" FROM", f', {others}, "version" FROM')
    columns = {"last seen": f"1000 * {_NEWEST}"}
    for name, field in _FIELDS.items():
        counter = "_total" if field in {"dropped_points", "child_restarts"} else ""
        metric = _METRIC.replace("rss_bytes", f"{field}{counter}")
        columns[name] = f"max by (host, version) ({metric})"
    return Query.written(last, columns)


def silent_hosts() -> Query:
    """Return the query of the hosts of silent agents."""
    text = f'SELECT "silent" FROM ({silent(_HERE, by="host")}) WHERE "silent" = 1 GROUP BY "host"'  # noqa: S608 - as above
    is_silent = f"(time() - max by (host) {_SEEN} > {SILENT_S})"
    return Query.written(text, {"silent": f"{is_silent} ^ 0"})
