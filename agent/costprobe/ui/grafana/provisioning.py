"""Files from which Grafana provisions data source, dashboards and the alert on silent agents at start.

Source: Grafana's documentation on provisioning, and on InfluxDB as a data source. A secret is
never written: Grafana replaces `$__file{...}` by the content of that file when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from costprobe.core.outside import bounded_object

SOURCE = "costprobe"
_HEAD = "# Written by `costprobe grafana provision`; the same command again replaces it.\n"
# Grafana expands variables after a dollar sign; a double dollar sign is escaped.
_LITERAL_DOLLAR = "$$"


@dataclass(frozen=True, slots=True)
class Source:
    """The InfluxDB that Grafana queries.

    Attributes:
        api: "v1" for user and password, "v2" for a token (2.x and 3.x); both are queried in InfluxQL.
        url: URL on Grafana's host.
        database: Database (1.x, 3.x), or the name that a DBRP mapping gives the bucket (2.x).
        user: User (v1); None if the server requires none.
        secret_file: File on Grafana's host with the password or a read token; None if none is
            required.
        ca: Certificates to trust instead of the system's, in PEM.
    """

    api: Literal["v1", "v2"]
    url: str
    database: str
    user: str | None = None
    secret_file: PurePosixPath | None = None
    ca: str | None = None


def sources_file(sources: Mapping[str, Source]) -> str:
    """Return the text of `datasources/costprobe.yaml`.

    Args:
        sources: Data sources by name, which is also their permanent identity in Grafana.
    """
    entries = [_entry(name, source) for name, source in sources.items()]
    return _HEAD + _yaml({"apiVersion": 1, "datasources": entries})


def _entry(name: str, source: Source) -> dict[str, object]:
    settings: dict[str, object] = {"dbName": source.database, "httpMode": "POST"}
    secrets: dict[str, str] = {}
    secret = "" if source.secret_file is None else f"$__file{{{source.secret_file}}}"
    if source.api == "v2" and secret:
        settings["httpHeaderName1"] = "Authorization"
        secrets["httpHeaderValue1"] = f"Token {secret}"
    elif source.user is not None and secret:
        secrets["password"] = secret
    if source.ca is not None:
        settings["tlsAuthWithCACert"] = True
        secrets["tlsCACert"] = _plain(source.ca)
    entry: dict[str, object] = {
        "name": name,
        "uid": name,
        "type": "influxdb",
        "access": "proxy",
        "url": _plain(source.url),
    }
    if source.user is not None:
        entry["user"] = _plain(source.user)
    entry["jsonData"] = {
        key: _plain(value) if isinstance(value, str) else value for key, value in settings.items()
    }
    if secrets:
        entry["secureJsonData"] = secrets
    return entry


def provider_file(folder: PurePosixPath) -> str:
    """Return the text of `dashboards/costprobe.yaml`.

    Args:
        folder: Folder of the dashboards on Grafana's host.
    """
    provider = {
        "name": "costprobe",
        "folder": "costprobe",
        "type": "file",
        "allowUiUpdates": False,
        "updateIntervalSeconds": 60,
        "options": {"path": _plain(str(folder))},
    }
    return _HEAD + _yaml({"apiVersion": 1, "providers": [provider]})


def alerts_file(source: str) -> str:
    """Return the text of `alerting/costprobe.yaml`.

    Args:
        source: Name of the data source.
    """
    return _HEAD + _yaml(alert_rules(source))


def provisioned(board: str, source: str) -> str:
    """Return a dashboard's JSON with its data source selected.

    Grafana selects the first source of a type if a dashboard names none, which may be another database.

    Args:
        board: The dashboard.
        source: Name of the data source.
    """
    document = bounded_object(board)
    for variable in document["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"selected": True, "text": source, "value": source}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _plain(text: str) -> str:
    return text.replace("$", _LITERAL_DOLLAR)


def _yaml(value: object, indent: str = "") -> str:
    """Format as YAML: block style for mappings and lists, JSON scalars for the rest."""
    if isinstance(value, Mapping):
        return "".join(f"{indent}{name}:{_below(inner, indent)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = (_item(item, f"{indent}  ") for item in value)
        return "".join(f"{indent}- {item}" for item in items)
    raise TypeError(f"no YAML for {type(value).__name__}")


def _item(value: object, indent: str) -> str:
    if isinstance(value, Mapping):
        return _yaml(value, indent)[len(indent) :]
    return f"{json.dumps(value, ensure_ascii=False)}\n"


def _below(value: object, indent: str) -> str:
    if isinstance(value, Mapping | list):
        return f"\n{_yaml(value, f'{indent}  ')}"
    return f" {json.dumps(value, ensure_ascii=False)}\n"


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


INFLUXDB: Final = "influxdb"
# Kinds of data source that the dashboards query.
EDITIONS: Final = (INFLUXDB, "prometheus")


def boards(edition: str = INFLUXDB) -> Mapping[str, str]:
    """Return the dashboards' JSON by file name.

    Args:
        edition: One of EDITIONS.
    """
    folder = resources.files("costprobe.ui.grafana") / "dashboards"
    if edition != INFLUXDB:
        folder /= edition
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return {name: files[name].read_text(encoding="utf-8") for name in sorted(files)}
