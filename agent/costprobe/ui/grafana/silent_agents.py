"""Agents without a recent row: the query of the dashboards, and an alert rule for Grafana.

Source of the rule's format: Grafana's documentation on file provisioning of alerting resources.
"""

from __future__ import annotations

from typing import Any, Final

# An agent writes a row a minute.
SILENT_S: Final = 120
# How long an agent is known after its last row.
KNOWN: Final = "7d"
# How long it alerts: a host that is gone for good does no longer.
_ALERTED: Final = "1d"


def seen(name: str, age: str, where: str = "") -> str:
    """Return InfluxQL with the newest row of each agent within `age`, whatever the time range.

    Args:
        name: Name of the column.
        age: Duration.
        where: Further condition.
    """
    condition = f"{where} AND time" if where else "time"
    return (
        f'SELECT last("rss_bytes") AS "{name}" FROM "agent"'  # noqa: S608 - constant text of this repository
        f' WHERE {condition} > now() - {age} GROUP BY "host"'
    )


def silent(where: str = "", *, by: str = "", known: str = KNOWN) -> str:
    """Return InfluxQL with the number of silent agents: known ones without a row for SILENT_S.

    Args:
        where: Condition on the tags.
        by: Tag to group by: with `host` 1 for a silent agent, 0 for the others.
        known: How long an agent is known after its last row.
    """
    group = f' GROUP BY "{by}"' if by else ""
    sources = f"({seen('known', known, where)}), ({seen('seen', f'{SILENT_S}s', where)})"
    return f'SELECT count("known") - count("seen") AS "silent" FROM {sources}{group} fill(0)'  # noqa: S608 - as above


def alert_rules(source: str) -> dict[str, Any]:
    """Return the content of `alerting/costprobe.yaml`.

    Args:
        source: Identity of the data source in Grafana.
    """
    everything = {"from": 86400, "to": 0}
    query = {
        "refId": "A",
        "query": silent(by="host", known=_ALERTED),
        "rawQuery": True,
        "resultFormat": "time_series",
        "alias": "$tag_host",
    }
    newest = {"refId": "B", "type": "reduce", "expression": "A", "reducer": "last"}
    above = {"evaluator": {"type": "gt", "params": [0]}}
    threshold = {"refId": "C", "type": "threshold", "expression": "B", "conditions": [above]}
    expression = {"type": "__expr__", "uid": "__expr__"}
    rule = {
        "uid": "costprobe-agent-silent",
        "title": "costprobe: agent silent",
        "condition": "C",
        "data": [
            {
                "refId": model["refId"],
                "relativeTimeRange": everything,
                "datasourceUid": uid,
                "model": {**model, "datasource": datasource},
            }
            for model, uid, datasource in (
                (query, source, {"type": "influxdb", "uid": source}),
                (newest, "__expr__", expression),
                (threshold, "__expr__", expression),
            )
        ],
        "dashboardUid": "costprobe-health",
        "panelId": 2,
        "noDataState": "NoData",
        "execErrState": "Error",
        "for": "0s",
        # Not the variables of the template: Grafana expands what follows a dollar sign.
        "annotations": {
            "summary": "costprobe on {{ .Labels.host }} wrote no row for two minutes",
            "description": (
                "The daemon, its host or the way to the database is down: `costprobe status` on that"
                " host. A host removed for good stops alerting after a day."
            ),
        },
        "labels": {"severity": "critical"},
    }
    group = {
        "orgId": 1,
        "name": "costprobe",
        "folder": "costprobe",
        "interval": "30s",
        "rules": [rule],
    }
    return {"apiVersion": 1, "groups": [group]}
